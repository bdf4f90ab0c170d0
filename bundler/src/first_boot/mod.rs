//! User-data that makes a node without a network verify a bundle and run it at its first boot. Text in, text out.
//!
//! cloud-init writes three files (and a key, and kubeadm's configuration, where they are given) and runs ONE command: only
//! the last command of `runcmd` decides what `cloud-init status` says. That command starts a unit and waits for it, so that
//! a boot that is cut short is gone on from by the next one, which cloud-init itself would not do.

use std::fmt::Write as _;

use clap::ValueEnum;
use quantykube_base::{Exit, Failure};
use quantykube_bundle_format::{Digest, PublicKey};

/// The unit's text.
const UNIT: &str = include_str!("first-boot.service");
/// What the unit runs, but for the values at its head.
const START: &str = include_str!("start.sh");
/// Where it stands on the node: in the folder of programs, for `/var` may be mounted noexec and `/tmp` is swept at boot.
const START_PATH: &str = "/usr/local/lib/quantykube/first-boot/start";
const UNIT_PATH: &str = "/etc/systemd/system/quantykube-first-boot.service";
const KEY_PATH: &str = "/etc/quantykube/trusted-keys/first-boot.pub";
const KUBEADM_PATH: &str = "/etc/quantykube/first-boot/kubeadm.yaml";

/// Who hands the user-data to the node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Platform {
    /// A disk with the label cidata: no limit
    Nocloud,
    /// 16384 bytes
    Ec2,
    /// 65535 characters of base64
    Openstack,
    /// 65535 bytes
    Azure,
    /// 524288 bytes
    Vsphere,
}

impl Platform {
    /// Most bytes of user-data that it takes.
    pub fn bytes_max(self) -> Option<usize> {
        match self {
            Platform::Nocloud => None,
            Platform::Ec2 => Some(16_384),
            // Four characters for each three bytes begun.
            Platform::Openstack => Some(65_535 / 4 * 3),
            Platform::Azure => Some(65_535),
            Platform::Vsphere => Some(524_288),
        }
    }
}

/// What the node is meant to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Role {
    /// Runs the API server
    ControlPlane,
    /// Runs none
    Worker,
}

/// Where the bundle is on the node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The label of the disk it is on; `None`: on the node's own disk.
    pub label: Option<String>,
    /// Its path: from the disk's root, or absolute.
    pub path: String,
}

/// All that goes into user-data.
#[derive(Debug)]
pub struct Request {
    pub place: Place,
    pub role: Role,
    /// Seconds.
    pub deadline: u64,
    /// SHA-256 of the whole bundle, compared before anything of it is run.
    pub sha256: Option<Digest>,
    pub id: Option<Digest>,
    pub key: Option<PublicKey>,
    /// The text of a configuration of `kubeadm init`.
    pub kubeadm: Option<String>,
}

/// The user-data, checked against what the platform takes.
pub fn user_data(request: &Request, platform: Platform) -> Result<String, Failure> {
    let text = render(request)?;
    match platform.bytes_max() {
        Some(most) if text.len() > most => {
            let message = format!(
                "the user-data has {} bytes, {} more than {} takes",
                text.len(),
                text.len() - most,
                platform.to_possible_value().expect("no platform is hidden").get_name(),
            );
            let hint = match request.kubeadm {
                Some(_) => "shorten kubeadm's configuration, or carry it on a NoCloud seed (quantykube-bundle seed)",
                None => "carry it on a NoCloud seed (quantykube-bundle seed)",
            };
            Err(Failure::new(Exit::Refused, "user-data-size", message).hint(hint))
        }
        _ => Ok(text),
    }
}

fn render(request: &Request) -> Result<String, Failure> {
    let Place { label, path } = &request.place;
    let wrong = |what: &str, found: &str, expected: &str| {
        let message = format!("{what} {found:?} cannot stand in user-data: expected {expected}");
        Failure::new(Exit::Usage, "user-data", message)
    };
    // They stand in a shell's script: only what means itself there is taken.
    if let Some(label) = label
        .as_deref()
        .filter(|label| label.len() > 32 || !is_plain(label, b"._-"))
    {
        return Err(wrong("the label", label, "1 to 32 of A-Z a-z 0-9 . _ -"));
    }
    let absolute = path.starts_with('/');
    if !is_plain(path, b"/._+@:=,-") || path.split('/').any(|part| part == "..") || absolute == label.is_some() {
        let expected = match label {
            Some(_) => "a path from the root of the disk, of A-Z a-z 0-9 / . _ + @ : = , -",
            None => "an absolute path of A-Z a-z 0-9 / . _ + @ : = , -",
        };
        return Err(wrong("the bundle's path", path, expected));
    }
    // A folder that is swept while the node boots.
    if absolute
        && ["/tmp", "/var/tmp"]
            .iter()
            .any(|folder| std::path::Path::new(path).starts_with(folder))
    {
        return Err(wrong(
            "the bundle's path",
            path,
            "a place that no boot clears, not a temporary folder",
        ));
    }
    let role = request.role.to_possible_value().expect("no role is hidden");
    let mut options = format!("--role {} --deadline {}s", role.get_name(), request.deadline);
    if let Some(id) = request.id {
        let _ = write!(options, " --id {id}");
    }
    if request.kubeadm.is_some() {
        let _ = write!(options, " --kubeadm-config {KUBEADM_PATH}");
    }
    let start = format!(
        "#!/bin/sh\n# Written by quantykube-bundle {}.\nlabel={}\npath={path}\nsha256={}\noptions='{options}'\n\n{START}",
        env!("CARGO_PKG_VERSION"),
        label.as_deref().unwrap_or_default(),
        request.sha256.map(|sha256| sha256.to_string()).unwrap_or_default(),
    );
    let mut text = String::from("#cloud-config\n");
    let _ = writeln!(
        text,
        "# Written by quantykube-bundle {}: verifies a bundle and runs it at first boot.",
        env!("CARGO_PKG_VERSION")
    );
    text.push_str("# A node that runs keeps what cloud-init would set anew.\nlocale: 'false'\n");
    if request.kubeadm.is_none() {
        text.push_str("# The cluster on this node knows it by its name.\npreserve_hostname: true\n");
    }
    text.push_str("write_files:\n");
    let mut file = |path: &str, mode: &str, content: &str| {
        let _ = write!(text, "- path: {path}\n  permissions: '{mode}'\n  content: |\n");
        for line in content.lines() {
            match line.is_empty() {
                true => text.push('\n'),
                false => {
                    let _ = writeln!(text, "    {line}");
                }
            }
        }
    };
    file(START_PATH, "0755", &start);
    file(UNIT_PATH, "0644", UNIT);
    if let Some(key) = &request.key {
        file(KEY_PATH, "0644", &key.to_string());
    }
    if let Some(kubeadm) = &request.kubeadm {
        check_block(kubeadm)?;
        file(KUBEADM_PATH, "0600", kubeadm);
    }
    let _ = write!(text, "runcmd:\n- [/bin/sh, {START_PATH}, begin]\n");
    Ok(text)
}

/// Whether a text means the same in a block of YAML: no character that YAML refuses, no first line that moves the indent.
fn check_block(text: &str) -> Result<(), Failure> {
    let bad = text
        .chars()
        .find(|c| (c.is_control() && *c != '\n') || matches!(*c, '\u{feff}' | '\u{85}' | '\u{2028}' | '\u{2029}'));
    let message = match bad {
        Some(bad) => format!("kubeadm's configuration has the character {bad:?}, which user-data cannot hold"),
        None if text.trim().is_empty() => "kubeadm's configuration is empty".to_owned(),
        None if text.starts_with([' ', '\n']) => {
            "kubeadm's configuration begins with a space or an empty line".to_owned()
        }
        None => return Ok(()),
    };
    Err(Failure::new(Exit::Usage, "kubeadm-config", message))
}

fn is_plain(text: &str, more: &[u8]) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            place: Place {
                label: Some("cidata".into()),
                path: "bundle.tar.gz".into(),
            },
            role: Role::ControlPlane,
            deadline: 1800,
            sha256: Some(Digest::of(b"bundle")),
            id: Some(Digest::of(b"id")),
            key: None,
            kubeadm: None,
        }
    }

    #[test]
    fn sizes_are_checked_to_the_byte() {
        let with = |length: usize| Request {
            kubeadm: Some("x".repeat(length) + "\n"),
            ..request()
        };
        let bare = render(&with(1)).unwrap().len() - 1;
        for (platform, most) in [
            (Platform::Ec2, 16_384),
            (Platform::Openstack, 49_149),
            (Platform::Azure, 65_535),
            (Platform::Vsphere, 524_288),
        ] {
            assert_eq!(user_data(&with(most - bare), platform).unwrap().len(), most);
            let failure = user_data(&with(most - bare + 3), platform).unwrap_err();
            assert!(failure.message.contains("3 more"), "{}", failure.message);
            assert_eq!(failure.exit, Exit::Refused);
        }
        assert!(user_data(&with(1 << 20), Platform::Nocloud).is_ok());
        let base64 = |bytes: usize| bytes.div_ceil(3) * 4;
        assert!(base64(49_149) <= 65_535 && base64(49_150) > 65_535);
    }

    #[test]
    fn it_is_yaml_that_says_what_was_asked() {
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let kubeadm = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n---\nempty:\n\nlast: '#'\n";
        let asked = Request {
            key: Some(PublicKey::parse(key).unwrap()),
            kubeadm: Some(kubeadm.into()),
            ..request()
        };
        let text = render(&asked).unwrap();
        assert!(text.starts_with("#cloud-config\n") && !text.contains("/tmp"), "{text}");
        let value: yaml_serde::Value = yaml_serde::from_str(&text).unwrap();
        assert_eq!(value["runcmd"].as_sequence().unwrap().len(), 1);
        let files = value["write_files"].as_sequence().unwrap();
        let content = |path: &str| {
            let file = files.iter().find(|file| file["path"].as_str() == Some(path)).unwrap();
            file["content"].as_str().unwrap().to_owned()
        };
        assert_eq!(content(KUBEADM_PATH), kubeadm);
        assert_eq!(content(KEY_PATH).trim_end(), key);
        assert_eq!(content(UNIT_PATH), UNIT);
        assert!(content(START_PATH).ends_with(START));
        assert!(content(START_PATH).contains(&format!("\nsha256={}\n", Digest::of(b"bundle"))));
    }

    #[test]
    fn nothing_gets_into_the_script_that_means_something_there() {
        for (label, path) in [
            (Some("ci data"), "b"),
            (Some(""), "b"),
            (Some("$(x)"), "b"),
            (Some("cidata"), "/absolute"),
            (Some("cidata"), "a/../b"),
            (None, "relative"),
            (None, "/a b"),
            (None, "/tmp/b"),
            (None, "/var/tmp/b"),
            (None, "/a;reboot"),
        ] {
            let place = Place {
                label: label.map(String::from),
                path: path.into(),
            };
            let failure = render(&Request { place, ..request() }).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{label:?} {path}");
        }
        for kubeadm in ["", "\n", " a: b", "a: \u{7}", "a\tb"] {
            let kubeadm = Some(kubeadm.to_owned());
            assert!(render(&Request { kubeadm, ..request() }).is_err());
        }
    }
}
