//! etcd into a store file and back, on real etcds: `quantykube migrate` as a program, the way back as a library.

mod back;
mod certificates;
mod copies;
mod disk;
mod etcd;
mod fake;
mod history;
mod kills;
mod program;
mod proxy;
mod records;
mod refusals;
mod room;
mod under_way;
