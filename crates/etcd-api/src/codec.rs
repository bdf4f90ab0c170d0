//! How messages get into and out of gRPC's frames.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// The usual encoding, into a buffer that has the right size from the start. A list of many megabytes would otherwise
/// be copied, and its memory touched, once per doubling.
#[derive(Debug)]
pub struct WireCodec<T, U>(PhantomData<(T, U)>);

/// The encoder of [`WireCodec`].
#[derive(Debug)]
pub struct WireEncoder<T>(PhantomData<T>);

impl<T, U> Default for WireCodec<T, U> {
    fn default() -> Self {
        WireCodec(PhantomData)
    }
}

impl<T, U> Codec for WireCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = WireEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        WireEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl<T: Message> Encoder for WireEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        item.encode_raw(buffer);
        Ok(())
    }
}
