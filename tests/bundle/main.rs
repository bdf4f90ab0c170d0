//! The bundle, from outside: `quantykube-bundle` is run as a user runs it.

mod agree; // tar, sha256sum and we say the same
mod cloud_init; // user-data and seeds for a first boot
mod damage; // truncated files and flipped bits
mod delta; // what makes a bundle of an older one
mod environment; // umasks, mounts, full disks, proxies, clocks, terminals
mod find_images; // what manifests name
mod habits; // completions, manual pages, help
mod half; // copies that stopped halfway, and what completes them
mod hostile; // archives made to do harm
mod images; // OCI layouts and docker archives become one layout
mod inspection; // inspect, diff, bills of materials, dry runs
mod interrupted; // builds and extractions that were stopped
mod layouts; // layouts of images that are not what they say
mod load; // images into a containerd
mod lock; // digests written down, and builds from them alone
mod node; // what the node-runner takes and refuses
mod parts; // optional parts of a spec
mod raw; // a second, independent writer of the format, for archives that ours would not write
mod refusals; // what `build` refuses, and that it leaves nothing
mod registry; // images out of registries
mod same_bytes; // the same inputs give the same bytes
mod schema; // specs to begin with, and their JSON Schema
mod signed; // signatures, and where a key is trusted
mod small_registry; // a registry that can misbehave, and an image for it
mod some; // single entries, without reading the rest
mod space; // file systems that are too small
mod split; // parts for small carriers
mod url; // binaries from a URL
mod workbench; // a folder with programs to pack, and the program under test
