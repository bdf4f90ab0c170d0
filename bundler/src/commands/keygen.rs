//! `keygen`: a pair of keys to sign bundles with.

use std::path::PathBuf;

use quantykube_base::{Exit, Failure, Reporter};
use serde_json::json;

use crate::args::Keygen;
use crate::files;
use crate::signing::{self, SecretKey};

/// Makes NAME.key and NAME.pub, or nothing.
pub fn run(args: &Keygen, report: &Reporter) -> Result<(), Failure> {
    let with = |ending: &str| {
        let mut name = args.output.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    };
    let (secret, public) = (with(".key"), with(".pub"));
    // Before a password is asked for.
    if let Some(there) = [&secret, &public]
        .into_iter()
        .find(|path| path.symlink_metadata().is_ok())
    {
        let message = format!("{} is there already, and is not written over", there.display());
        return Err(Failure::new(Exit::Refused, "exists", message).hint("give another name with -o NAME"));
    }
    let password = match args.no_password {
        true => None,
        false => Some(signing::new_password()?),
    };
    let made = SecretKey::make(password)?;
    files::make(&secret, &made.secret_file, 0o600)?;
    files::make(&public, &made.public_file, 0o644).inspect_err(|_| {
        let _ = std::fs::remove_file(&secret);
    })?;
    let (secret, public) = (secret.display().to_string(), public.display().to_string());
    let text = format!(
        "{secret}  signs: quantykube-bundle build --sign {secret}; keep it to yourself\n{public}  checks: copy it to \
         /etc/quantykube/trusted-keys/ on each node\nkey id  {}\nkey     {}",
        made.public.id(),
        made.public,
    );
    let value = json!({
        "secretKey": secret,
        "publicKey": public,
        "keyId": made.public.id().to_string(),
        "key": made.public.to_string(),
    });
    report.result(&text, value);
    Ok(())
}
