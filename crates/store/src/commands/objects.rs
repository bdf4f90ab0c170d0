//! What Kubernetes writes into a value: JSON, protobuf in an envelope, or something encrypted.

use prost::Message;

/// What stands before an object in protobuf.
const PROTOBUF: &[u8] = b"k8s\0";

/// What stands before an encrypted object; the provider's name follows.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// A stored object.
#[derive(Debug, PartialEq)]
pub enum Object {
    /// JSON: custom resources, and all objects of an API server that was set to it.
    Json(serde_json::Value),
    /// Protobuf: which kind it is and what its metadata says. The rest needs the schema of its kind.
    Protobuf {
        /// Such as apps/v1.
        api_version: String,
        /// Such as Deployment.
        kind: String,
        /// Its metadata, if that could be read.
        meta: Option<Meta>,
    },
    /// Encrypted; the provider and its key's name, such as `aescbc:v1:key1`.
    Encrypted(String),
    /// Neither.
    Other,
}

/// `k8s.io/apimachinery/pkg/runtime.Unknown`.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    raw: bytes::Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

/// What all kinds have in common: their metadata is field 1.
#[derive(Clone, PartialEq, Message)]
struct AnyKind {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Meta>,
}

/// The part of `k8s.io/apimachinery/pkg/apis/meta/v1.ObjectMeta` that names an object.
#[derive(Clone, PartialEq, Message)]
pub struct Meta {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The namespace.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// The uid.
    #[prost(string, tag = "5")]
    pub uid: String,
    /// Labels.
    #[prost(btree_map = "string, string", tag = "11")]
    pub labels: std::collections::BTreeMap<String, String>,
}

/// Tells what a value is.
pub fn read(value: &[u8]) -> Object {
    if let Some(rest) = value.strip_prefix(ENCRYPTED) {
        // provider:version:key name: and then the ciphertext.
        let names: Vec<_> = rest.splitn(4, |byte| *byte == b':').take(3).collect();
        let name = names.join(&b':');
        return Object::Encrypted(String::from_utf8_lossy(&name[..name.len().min(200)]).into_owned());
    }
    if let Some(rest) = value.strip_prefix(PROTOBUF) {
        let Ok(Unknown { type_meta, raw }) = Unknown::decode(rest) else {
            return Object::Other;
        };
        let TypeMeta { api_version, kind } = type_meta.unwrap_or_default();
        let meta = AnyKind::decode(raw).ok().and_then(|any| any.metadata);
        return Object::Protobuf {
            api_version,
            kind,
            meta,
        };
    }
    match serde_json::from_slice(value) {
        Ok(json @ serde_json::Value::Object(_)) => Object::Json(json),
        _ => Object::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_storing_is_told() {
        let meta = Meta {
            name: "web".to_owned(),
            namespace: "shop".to_owned(),
            uid: "1-2".to_owned(),
            labels: [("app".to_owned(), "web".to_owned())].into(),
        };
        let raw = AnyKind {
            metadata: Some(meta.clone()),
        };
        let unknown = Unknown {
            type_meta: Some(TypeMeta {
                api_version: "apps/v1".to_owned(),
                kind: "Deployment".to_owned(),
            }),
            raw: raw.encode_to_vec().into(),
        };
        let stored = [PROTOBUF, &unknown.encode_to_vec()].concat();
        let expected = Object::Protobuf {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            meta: Some(meta),
        };
        assert_eq!(read(&stored), expected);
        assert_eq!(
            read(b"k8s:enc:aescbc:v1:key1:\x00\xff:rest"),
            Object::Encrypted("aescbc:v1:key1".to_owned())
        );
        assert_eq!(
            read(b"{\"kind\":\"X\"}"),
            Object::Json(serde_json::json!({"kind": "X"}))
        );
        for other in [&b""[..], b"k8s\0\xff\xff", b"[1]", b"7", b"k8s:enc:", b"\x00"] {
            assert!(!matches!(read(other), Object::Json(_)), "{other:?}");
        }
    }
}
