//! Fills an etcd for a benchmark: KEYS keys under /registry/bench/ with values of SIZE bytes.
//!
//! usage: fill_etcd ENDPOINT KEYS SIZE [CERT KEY CACERT]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions, Txn, TxnOp};

/// Puts in one transaction, the most etcd takes.
const TOGETHER: u64 = 128;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (endpoint, keys, size, options) = match &arguments[..] {
        [endpoint, keys, size] => (endpoint, keys, size, None),
        [endpoint, keys, size, cert, key, cacert] => {
            let tls = TlsOptions::new()
                .ca_certificate(Certificate::from_pem(std::fs::read(cacert)?))
                .identity(Identity::from_pem(std::fs::read(cert)?, std::fs::read(key)?));
            (endpoint, keys, size, Some(ConnectOptions::new().with_tls(tls)))
        }
        _ => return Err("usage: fill_etcd ENDPOINT KEYS SIZE [CERT KEY CACERT]".into()),
    };
    let (keys, size): (u64, usize) = (keys.parse()?, size.parse()?);
    let client = Client::connect([endpoint], options).await?;
    let next = Arc::new(AtomicU64::new(0));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut client = client.clone();
        let next = next.clone();
        writers.spawn(async move {
            loop {
                let first = next.fetch_add(TOGETHER, Ordering::Relaxed);
                if first >= keys {
                    return Ok::<(), etcd_client::Error>(());
                }
                let operations: Vec<TxnOp> = (first..keys.min(first + TOGETHER))
                    .map(|n| TxnOp::put(format!("/registry/bench/{n:012}"), value(n, size), None))
                    .collect();
                client.txn(Txn::new().and_then(operations)).await?;
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    Ok(())
}

/// Bytes that do not compress: a multiplicative generator seeded by the key's number.
fn value(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..size)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
