//! Keys that sign: minisign's, read and made here, and never shown.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use blake2::{Blake2b512, Digest};
use quantykube_base::{Exit, Failure, Reporter};
use quantykube_bundle_format::{PublicKey, Signer};
use ring::signature::Ed25519KeyPair;

use crate::files;

/// The environment variable that may hold the password of a key.
pub const PASSWORD: &str = "QUANTYKUBE_SIGN_PASSWORD";
/// The longest secret key file, in bytes.
const KEY_FILE_MAX: u64 = 4096;
/// minisign's mark of a key that has no password.
const NO_PASSWORD: [u8; 2] = [0, 0];
/// The length of minisign's secret key in bytes.
const KEY_LENGTH: usize = 158;
/// Where the seed stands in minisign's secret key: after the algorithms, the salt, the costs and the key's id.
const SEED: std::ops::Range<usize> = 62..94;

/// A secret key. It has no `Debug`: nothing may print it.
pub struct SecretKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// A pair that was just made, as the two files that minisign reads.
pub struct Made {
    pub secret_file: String,
    pub public_file: String,
    pub public: PublicKey,
}

impl SecretKey {
    /// Reads a secret key of minisign; asks for its password where it has one.
    pub fn read(path: &Path, report: &Reporter) -> Result<SecretKey, Failure> {
        let shown = path.display();
        let text = files::read_text(path, KEY_FILE_MAX)?;
        if std::fs::metadata(path).is_ok_and(|data| data.mode() & 0o077 != 0) {
            report.warning("key-mode", &format!("{shown} can be read by others; chmod 600 {shown}"));
        }
        // What the crate says about a key could repeat parts of it.
        let no_key = || {
            let message = format!("{shown} is no secret key of minisign");
            Failure::new(Exit::Usage, "secret-key", message).hint("quantykube-bundle keygen makes one")
        };
        let boxed = minisign::SecretKeyBox::from_string(&text).map_err(|_| no_key())?;
        let key = match has_no_password(&text).ok_or_else(no_key)? {
            true => boxed.into_unencrypted_secret_key().map_err(|_| no_key())?,
            false => {
                let password = password(&format!("password of {shown}: "))?;
                boxed.into_secret_key(Some(password)).map_err(|_| {
                    let message = format!("{shown} cannot be opened with this password");
                    Failure::new(Exit::Refused, "password", message)
                })?
            }
        };
        let public = minisign::PublicKey::from_secret_key(&key).map_err(|_| no_key())?;
        let public = PublicKey::parse(&public.to_base64()).map_err(|_| no_key())?;
        let bytes = key.to_bytes();
        let (seed, point) = (bytes.get(SEED), bytes.get(SEED.end..SEED.end + 32));
        let (seed, point) = seed.zip(point).ok_or_else(no_key)?;
        let pair = Ed25519KeyPair::from_seed_and_public_key(seed, point).map_err(|_| no_key())?;
        Ok(SecretKey { pair, public })
    }

    /// Makes a pair. Without a password the file alone is enough to sign.
    pub fn make(password: Option<String>) -> Result<Made, Failure> {
        let failed = |error: minisign::PError| {
            Failure::new(Exit::Failed, "keygen", "cannot make a key").because(error.to_string())
        };
        let pair = match password {
            Some(password) => minisign::KeyPair::generate_encrypted_keypair(Some(password)),
            None => minisign::KeyPair::generate_unencrypted_keypair(),
        };
        let pair = pair.map_err(failed)?;
        let public = PublicKey::parse(&pair.pk.to_base64()).expect("a key that was just made is one");
        let comment = format!("secret key {} of quantykube-bundle: keep it to yourself", public.id());
        let secret_file = pair.sk.to_box(Some(&comment)).map_err(failed)?.into_string();
        Ok(Made {
            secret_file,
            public_file: format!(
                "untrusted comment: public key {} of quantykube-bundle\n{public}\n",
                public.id()
            ),
            public,
        })
    }
}

/// Signs without chance, unlike minisign's own code: the same bundle and key give the same bytes.
impl Signer for SecretKey {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, bytes: &[u8], trusted_comment: &str) -> ([u8; 64], [u8; 64]) {
        let sign = |bytes: &[u8]| {
            let signature = self.pair.sign(bytes);
            signature
                .as_ref()
                .try_into()
                .expect("an Ed25519 signature has 64 bytes")
        };
        let first: [u8; 64] = sign(&Blake2b512::digest(bytes));
        let both = [&first[..], trusted_comment.as_bytes()].concat();
        (first, sign(&both))
    }
}

/// Whether the file of a secret key says that it has no password; `None` where it is no such file.
fn has_no_password(text: &str) -> Option<bool> {
    let line = text.lines().nth(1)?;
    let bytes = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, line).ok()?;
    // "Ed", and how the password is used.
    let is_key =
        bytes.len() == KEY_LENGTH && bytes[..2] == *b"Ed" && [NO_PASSWORD, *b"Sc"].contains(&[bytes[2], bytes[3]]);
    is_key.then(|| bytes[2..4] == NO_PASSWORD)
}

/// The password from the environment, else from the terminal.
pub fn password(prompt: &str) -> Result<String, Failure> {
    let password = match std::env::var_os(PASSWORD) {
        Some(value) => value.into_string().map_err(|_| {
            let message = format!("{PASSWORD} is no UTF-8");
            Failure::new(Exit::Usage, "password", message)
        })?,
        None => rpassword::prompt_password(prompt).map_err(|error| {
            let message = format!("no password: {PASSWORD} is not set and no terminal can be asked");
            Failure::new(Exit::Usage, "password", message).because(error)
        })?,
    };
    match password.is_empty() {
        true => Err(Failure::new(Exit::Usage, "password", "the password is empty")
            .hint("a key without a password is made with keygen --no-password")),
        false => Ok(password),
    }
}

/// A password for a new key: typed twice, or from the environment.
pub fn new_password() -> Result<String, Failure> {
    let first = password("password for the new key: ")?;
    if std::env::var_os(PASSWORD).is_none() && password("once more: ")? != first {
        return Err(Failure::new(Exit::Usage, "password", "the two passwords differ"));
    }
    Ok(first)
}
