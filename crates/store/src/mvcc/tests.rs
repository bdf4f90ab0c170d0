//! etcd's semantics, checked on a real file.
