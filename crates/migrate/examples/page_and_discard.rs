//! Reads an etcd as `migrate` does, page by page at one revision, and throws the data away: what a copy is measured
//! against. Prints keys, bytes, seconds and bytes per second.
//!
//! usage: page_and_discard ENDPOINT [CERT KEY CACERT]

use std::time::Instant;

use quantykube_migrate::{Source, read_and_discard};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut source = Source::default();
    match &arguments[..] {
        [endpoint] => source.endpoints.push(endpoint.clone()),
        [endpoint, cert, key, cacert] => {
            source.endpoints.push(endpoint.clone());
            source.cert = Some(cert.into());
            source.key = Some(key.into());
            source.cacert = Some(cacert.into());
        }
        _ => return Err("usage: page_and_discard ENDPOINT [CERT KEY CACERT]".into()),
    }
    // The same runtime as the product's verb has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let begun = Instant::now();
    let (keys, bytes) = runtime.block_on(read_and_discard(&source))?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{{\"keys\":{keys},\"bytes\":{bytes},\"seconds\":{seconds:.3},\"bytesPerSecond\":{:.0}}}",
        bytes as f64 / seconds
    );
    Ok(())
}
