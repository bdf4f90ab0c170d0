//! The stream itself, message by message.

use quantykube_etcd_api::maintenance_client::MaintenanceClient;
use quantykube_etcd_api::{SnapshotRequest, SnapshotResponse};
use sha2::{Digest, Sha256};
use tonic::Streaming;
use tonic::transport::Channel;

use crate::store::Store;

/// Opens a stream on a connection of its own.
pub async fn open(store: &Store) -> Streaming<SnapshotResponse> {
    let channel = Channel::from_shared(store.url()).unwrap().connect().await.unwrap();
    let mut client = MaintenanceClient::new(channel);
    client.snapshot(SnapshotRequest {}).await.unwrap().into_inner()
}

/// What has come of a stream; checks each message against the ones before it.
#[derive(Default)]
pub struct Taken {
    pub bytes: u64,
    pub messages: u64,
    whole: Option<u64>,
    sum: Sha256,
    done: bool,
}

impl Taken {
    pub fn take(&mut self, message: &SnapshotResponse) {
        assert!(!self.done, "a message after the sum");
        assert_eq!(message.version, "3.6.0");
        assert!(message.header.is_none(), "etcd sends none");
        self.messages += 1;
        let length = message.blob.len() as u64;
        let whole = *self.whole.get_or_insert(message.remaining_bytes + length);
        if self.bytes < whole {
            self.bytes += length;
            self.sum.update(&message.blob);
            assert_eq!(message.remaining_bytes, whole - self.bytes);
        } else {
            assert_eq!(message.remaining_bytes, 0);
            assert_eq!(message.blob[..], self.sum.clone().finalize()[..], "the sum");
            self.done = true;
        }
    }

    /// Whether the sum has come.
    pub fn is_done(&self) -> bool {
        self.done
    }
}

/// Takes what is left, with the bytes.
pub async fn rest(mut stream: Streaming<SnapshotResponse>, taken: &mut Taken, mut bytes: Vec<u8>) -> Vec<u8> {
    while let Some(message) = stream.message().await.unwrap() {
        taken.take(&message);
        bytes.extend_from_slice(&message.blob);
    }
    assert!(taken.is_done(), "the stream ended without its sum");
    assert_eq!(bytes.len() % 512, 32);
    bytes
}
