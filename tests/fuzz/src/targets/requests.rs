//! The decoding of requests: a running store gets messages to all its methods that are whole, mutated, of random fields or
//! nested without end. It answers or refuses each, stays, and its memory stays bounded.

use std::path::{Path, PathBuf};
use std::time::Duration;

use prost::Message;
use quantykube_etcd_api::METHODS;
use rand::RngExt;
use rand::rngs::SmallRng;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::{Judge, Plant, Took, mutate};
use crate::raw::call;
use crate::resolve::Known;
use crate::side::{Kind, Side};
use crate::step::Step;
use crate::{generate, side};

/// The most memory that the store may take: it holds little, and a request is 2 MiB at most.
const PEAK_KIB: u64 = 400 << 10;
/// A stream of answers that goes on is left after this time.
const STREAM: Duration = Duration::from_millis(20);

/// The target.
pub(super) struct Requests {
    runtime: Runtime,
    side: Side,
    channel: Channel,
    /// Paths of all methods; whether one side of it is a stream.
    methods: Vec<(&'static str, bool)>,
    /// Whole requests with their methods.
    whole: Vec<(&'static str, Vec<u8>)>,
    judged: u64,
}

impl Requests {
    pub(super) fn new() -> Result<Requests, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("a runtime: {error}"))?;
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let (side, channel) = runtime.block_on(start(folder))?;
        let known = Known {
            head: 50,
            ..Known::fresh()
        };
        let whole = generate::steps(1, 0, 2000).into_iter().filter_map(|step| match &step {
            Step::Range(range) => Some(("/etcdserverpb.KV/Range", known.range(range).encode_to_vec())),
            Step::Put(put) => Some(("/etcdserverpb.KV/Put", known.put(put).encode_to_vec())),
            Step::Delete(delete) => Some(("/etcdserverpb.KV/DeleteRange", known.delete(delete).encode_to_vec())),
            Step::Txn(txn) => Some(("/etcdserverpb.KV/Txn", known.txn(txn).encode_to_vec())),
            _ => None,
        });
        let methods = METHODS.iter().map(|(service, method, kind)| {
            let path: &'static str = format!("/{service}/{method}").leak();
            (path, *kind != "unary")
        });
        Ok(Requests {
            side,
            channel,
            methods: methods.collect(),
            whole: whole.collect(),
            judged: 0,
            runtime,
        })
    }

    fn request(&self, rng: &mut SmallRng) -> (&'static str, bool, Vec<u8>) {
        let (path, mut bytes) = self.whole[rng.random_range(0..self.whole.len())].clone();
        match rng.random_range(0..20) {
            // As it is, so that there is something in the store.
            0..=2 => (path, false, bytes),
            3..=13 => {
                mutate::text(rng, &mut bytes);
                (path, false, bytes)
            }
            14 => ("/etcdserverpb.KV/Txn", false, nested(rng)),
            _ => {
                // Streams wait for more: not too many of them.
                let kind = rng.random_range(0..20) == 0;
                let of_kind: Vec<_> = self.methods.iter().filter(|(_, stream)| *stream == kind).collect();
                let (path, stream) = of_kind[rng.random_range(0..of_kind.len())];
                let bytes = if rng.random() { fields(rng, 3) } else { bytes };
                (path, *stream, bytes)
            }
        }
    }
}

async fn start(folder: PathBuf) -> Result<(Side, Channel), String> {
    let side = side::Side::fresh(Kind::Store, &folder).await?;
    let channel = side.channel().await?;
    Ok((side, channel))
}

impl Judge for Requests {
    fn judge(&mut self, rng: &mut SmallRng, planted: Option<Plant>) -> Result<Took, String> {
        match planted {
            Some(Plant::Panic) => self.side.kill(),
            Some(Plant::Hang) => super::plant(planted),
            _ => {}
        }
        let (path, stream, bytes) = self.request(rng);
        let shown: String = bytes.iter().take(200).map(|byte| format!("{byte:02x}")).collect();
        let sent = call(&self.channel, path, bytes.into());
        let limit = if stream { STREAM } else { Duration::from_secs(50) };
        let answer = self.runtime.block_on(async { tokio::time::timeout(limit, sent).await });
        self.judged += 1;
        if self.judged.is_multiple_of(256) || planted == Some(Plant::Allocation) {
            let peak = self.side.peak_kib();
            let limit = if planted == Some(Plant::Allocation) {
                1
            } else {
                PEAK_KIB
            };
            if peak > limit {
                return Err(format!("the store has taken {peak} KiB: more than {limit}"));
            }
        }
        match answer {
            Ok(Ok(_)) => Ok(Took::Other),
            Err(_) if stream => Ok(Took::Other),
            Err(_) => Err(format!("no answer from {path} to {shown}")),
            Ok(Err(status)) => match status.code() {
                tonic::Code::Unavailable | tonic::Code::Unknown => {
                    std::thread::sleep(Duration::from_millis(200));
                    let ended = self.side.ended().unwrap_or_else(|| "it runs".to_owned());
                    Err(format!("{path} to {shown}: {status}; {ended}"))
                }
                _ => Ok(Took::Refused),
            },
        }
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A message of random fields: it parses as one, and fits some method's by chance.
fn fields(rng: &mut SmallRng, depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.random_range(0..6) {
        let number: u64 = rng.random_range(1..14);
        match rng.random_range(0..8) {
            0..=3 => {
                varint(&mut out, number << 3);
                let value = mutate::number(rng, 5);
                varint(&mut out, value);
            }
            4..=6 => {
                let inner = match depth {
                    0 => vec![b'k'; rng.random_range(0..9)],
                    depth => fields(rng, depth - 1),
                };
                varint(&mut out, number << 3 | 2);
                varint(&mut out, inner.len() as u64);
                out.extend_from_slice(&inner);
            }
            // Other wire types, groups among them.
            wire => varint(
                &mut out,
                number << 3 | if wire == 7 { rng.random_range(1..8) } else { 2 },
            ),
        }
    }
    out
}

/// A transaction in a transaction in a transaction: `TxnRequest.success` (2) of `RequestOp.request_txn` (4).
fn nested(rng: &mut SmallRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.random_range(1..400) {
        for tag in [4 << 3 | 2, 2 << 3 | 2] {
            let mut outer = vec![tag];
            varint(&mut outer, bytes.len() as u64);
            outer.append(&mut bytes);
            bytes = outer;
        }
    }
    bytes
}
