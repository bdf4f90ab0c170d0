//! etcd's own files, judged by real etcds: what they wrote is read, and what is written here they start from.
//!
//! The peers are 3.6 with its etcdctl and etcdutl, and Debian's 3.4. Random parts print their seed; `QUANTYKUBE_SEED`
//! repeats them.

mod damage;
mod reading;
mod world;
mod writing;
