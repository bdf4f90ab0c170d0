//! Requests as bytes: what a broken or hostile client may send.

use bytes::{Buf, BufMut, Bytes};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Bytes as they are.
#[derive(Default)]
pub struct Plain;

impl Codec for Plain {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Plain;
    type Decoder = Plain;

    fn encoder(&mut self) -> Plain {
        Plain
    }

    fn decoder(&mut self) -> Plain {
        Plain
    }
}

impl Encoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Plain {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// Calls a method with these bytes as its request.
///
/// # Errors
/// The server's refusal, or that it is gone.
pub async fn call(channel: &Channel, path: &'static str, bytes: Bytes) -> Result<Bytes, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(usize::MAX);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(format!("not connected: {error}")))?;
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
    let response = client.unary(Request::new(bytes), path, Plain).await?;
    Ok(response.into_inner())
}
