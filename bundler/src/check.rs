//! What the user expects of a bundle, and what is said of its signature.

use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::{Delta, Digest, KeyId, PublicKey, Unverified};

use crate::args::Meant;

/// What the user said about the bundle, read before the bundle is.
pub struct Expected {
    id: Option<Digest>,
    key: Option<PublicKey>,
}

impl Expected {
    /// Reads the id and the key.
    pub fn read(meant: &Meant) -> Result<Expected, Failure> {
        let wrong = |name, message: String| Failure::new(Exit::Usage, name, message);
        let id = meant.id.as_deref().map(str::parse).transpose();
        let key = meant.public_key.as_deref().map(PublicKey::given).transpose();
        let hint = "give the file NAME.pub that keygen wrote, or the line in it that begins with RW";
        Ok(Expected {
            id: id.map_err(|error: quantykube_bundle_format::NoDigest| wrong("id", format!("--id: {error}")))?,
            key: key.map_err(|error| {
                wrong("public-key", "--public-key names no key".into())
                    .because(error)
                    .hint(hint)
            })?,
        })
    }

    /// Whether anything was said that makes `bundle.json` true.
    pub fn is_any(&self) -> bool {
        self.id.is_some() || self.key.is_some()
    }

    /// Compares before anything but `bundle.json` was read. Says with which key the bundle is truly signed.
    pub fn compare(&self, bundle: &Unverified) -> Result<Option<KeyId>, Failure> {
        let key = match &self.key {
            Some(key) => Some(bundle.check_signature(std::slice::from_ref(key))?),
            None => None,
        };
        self.compare_id(bundle.id())?;
        Ok(key)
    }

    /// The same of the bundle that a delta makes.
    pub fn compare_delta(&self, delta: &Delta) -> Result<Option<KeyId>, Failure> {
        let key = match &self.key {
            Some(key) => Some(delta.check_signature(std::slice::from_ref(key))?),
            None => None,
        };
        self.compare_id(delta.id())?;
        Ok(key)
    }

    fn compare_id(&self, found: Digest) -> Result<(), Failure> {
        match self.id.filter(|wanted| *wanted != found) {
            Some(wanted) => {
                let message = format!("the bundle has the id {found}, expected {wanted}");
                Err(Failure::new(Exit::NotVerified, "id-differs", message).hint("this is not the bundle that you mean"))
            }
            None => Ok(()),
        }
    }
}

/// A line about the signature, where there is one.
pub fn signed(bundle: &Unverified, checked: Option<KeyId>) -> String {
    match (checked, bundle.signature()) {
        (Some(key), _) => format!("\nsigned by  {key}"),
        (None, Some(signature)) => format!("\nsigned by  {} (claimed; --public-key checks it)", signature.key()),
        (None, None) => String::new(),
    }
}
