//! Lifts an etcd's revision by COUNT with the filler of the way back: what is measured beside `benchmark put`.
//!
//! usage: raise_revision ENDPOINT COUNT [CERT KEY CACERT]

use std::time::Instant;

use quantykube_base::{Mode, Reporter};
use quantykube_migrate::{Source, raise_revision, store_revision};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut source = Source::default();
    let count: i64 = match &arguments[..] {
        [endpoint, count] => {
            source.endpoints.push(endpoint.clone());
            count.parse()?
        }
        [endpoint, count, cert, key, cacert] => {
            source.endpoints.push(endpoint.clone());
            source.cert = Some(cert.into());
            source.key = Some(key.into());
            source.cacert = Some(cacert.into());
            count.parse()?
        }
        _ => return Err("usage: raise_revision ENDPOINT COUNT [CERT KEY CACERT]".into()),
    };
    // The same runtime as the product's verb has.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let from = store_revision(&source).await?;
        let begun = Instant::now();
        let written = raise_revision(&source, from + count, &Reporter::new(Mode::Plain))
            .await?
            .writes;
        let seconds = begun.elapsed().as_secs_f64();
        let rate = written as f64 / seconds;
        println!("{{\"writes\":{written},\"seconds\":{seconds:.3},\"writesPerSecond\":{rate:.0}}}");
        Ok(())
    })
}
