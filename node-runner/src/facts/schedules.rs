//! What saves etcd on a schedule: cron's tables and systemd's timers that name etcdctl or etcd's client port, themselves or
//! in a program that they start. They would go on saving an etcd that nobody writes to any more.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::facts::Root;

/// Tables of cron: files, and folders of files.
const CRON: [&str; 9] = [
    "/etc/crontab",
    "/etc/anacrontab",
    "/etc/cron.d",
    "/etc/cron.hourly",
    "/etc/cron.daily",
    "/etc/cron.weekly",
    "/etc/cron.monthly",
    "/var/spool/cron",
    "/var/spool/cron/crontabs",
];
/// Where systemd finds units, the most important folder first.
const UNITS: [&str; 5] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// What gives away that etcd is meant.
const SIGNS: [&str; 3] = ["etcdctl", "etcdutl", ":2379"];

/// Whether a line names etcd. A longer number is another port.
fn names_etcd(line: &str) -> bool {
    SIGNS.iter().any(|sign| {
        line.match_indices(sign)
            .any(|(at, _)| !line[at + sign.len()..].starts_with(|next: char| next.is_ascii_digit()))
    })
}
/// No script of a schedule is larger, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The tables and timers that mean etcd, each once, in order.
pub fn of_etcd(root: &Root) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for place in CRON {
        for file in files(root, Path::new(place)) {
            if means_etcd(root, &file) {
                found.insert(file);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for folder in UNITS {
        for timer in files(root, Path::new(folder)) {
            let name = timer.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(stem) = name.strip_suffix(".timer") else {
                continue;
            };
            // The same name in a folder further on is overridden by this one.
            if !seen.insert(name.clone()) {
                continue;
            }
            let service = text(root, &timer)
                .lines()
                .find_map(|line| line.trim().strip_prefix("Unit=").map(str::to_owned))
                .unwrap_or_else(|| format!("{stem}.service"));
            if unit_files(root, &service).iter().any(|file| means_etcd(root, file)) {
                found.insert(timer);
            }
        }
    }
    found.into_iter().collect()
}

/// A unit's file and its drop-ins.
fn unit_files(root: &Root, unit: &str) -> Vec<PathBuf> {
    // backup@hourly.service is made from backup@.service.
    let template = unit
        .split_once('@')
        .and_then(|(name, rest)| Some(format!("{name}@.{}", rest.rsplit_once('.')?.1)));
    let mut all = Vec::new();
    for name in [Some(unit.to_owned()), template].into_iter().flatten() {
        let file = UNITS
            .iter()
            .map(|folder| Path::new(folder).join(&name))
            .find(|file| root.at(file).is_file());
        all.extend(file);
        all.extend(
            UNITS
                .iter()
                .flat_map(|folder| files(root, &Path::new(folder).join(format!("{name}.d")))),
        );
    }
    all
}

/// Whether a file names etcd, or starts a script that does. Comments do not count.
fn means_etcd(root: &Root, file: &Path) -> bool {
    let lines = |text: String| -> Vec<String> {
        let code = |line: &&str| !line.trim_start().starts_with('#');
        text.lines().filter(code).map(str::to_owned).collect()
    };
    let names_it = |line: &String| names_etcd(line);
    let own = lines(text(root, file));
    own.iter().any(names_it)
        || own
            .iter()
            .flat_map(|line| {
                line.split([
                    ' ', '\t', '=', '"', '\'', ';', '&', '|', '(', ')', '!', '-', '+', '@', ':',
                ])
            })
            .filter(|word| word.starts_with('/') && Path::new(word) != file)
            .any(|script| lines(text(root, Path::new(script))).iter().any(names_it))
}

/// The text of a small regular file; empty for anything else, such as a program that is no script.
fn text(root: &Root, file: &Path) -> String {
    let at = root.at(file);
    match fs::metadata(&at) {
        Ok(meta) if meta.is_file() && meta.len() <= FILE_BYTES_MAX => fs::read_to_string(at).unwrap_or_default(),
        _ => String::new(),
    }
}

/// The place itself where it is a file, else the files in it.
fn files(root: &Root, place: &Path) -> Vec<PathBuf> {
    if root.at(place).is_file() {
        return vec![place.to_owned()];
    }
    let mut all: Vec<PathBuf> = fs::read_dir(root.at(place))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| place.join(entry.file_name()))
        .filter(|path| root.at(path).is_file())
        .collect();
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn schedules_that_save_etcd_are_found_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(of_etcd(&root).is_empty());
        put(
            &root,
            "/etc/crontab",
            "# etcdctl in a comment\n1 * * * * root /usr/bin/true\n",
        );
        put(
            &root,
            "/etc/cron.d/other",
            "* * * * * root curl https://127.0.0.1:23790\n",
        );
        put(
            &root,
            "/etc/cron.d/backup",
            "0 3 * * * root ETCDCTL_API=3 /usr/local/bin/etcdctl snapshot save x\n",
        );
        put(&root, "/etc/cron.daily/script", "#!/bin/sh\n/opt/save --now\n");
        put(&root, "/opt/save", "#!/bin/sh\ncurl https://127.0.0.1:2379/health\n");
        put(
            &root,
            "/var/spool/cron/crontabs/root",
            "@daily etcdutl snapshot status x\n",
        );
        // Timers: by their service, a named unit, a drop-in, a template, a script; an unrelated one, and one overridden.
        put(&root, "/etc/systemd/system/a.timer", "[Timer]\nOnCalendar=daily\n");
        put(
            &root,
            "/etc/systemd/system/a.service",
            "[Service]\nExecStart=/bin/sh -c 'etcdctl snapshot save'\n",
        );
        put(&root, "/usr/lib/systemd/system/b.timer", "[Timer]\nUnit=save.service\n");
        put(
            &root,
            "/usr/lib/systemd/system/save.service",
            "[Service]\nExecStart=-/opt/save\n",
        );
        put(&root, "/lib/systemd/system/c.timer", "[Timer]\n");
        put(
            &root,
            "/lib/systemd/system/c.service",
            "[Service]\nExecStart=/bin/true\n",
        );
        put(
            &root,
            "/etc/systemd/system/c.service.d/x.conf",
            "[Service]\nExecStartPost=etcdctl endpoint health\n",
        );
        put(&root, "/etc/systemd/system/t@x.timer", "[Timer]\n");
        put(
            &root,
            "/etc/systemd/system/t@.service",
            "[Service]\nExecStart=etcdctl %i\n",
        );
        put(&root, "/usr/lib/systemd/system/apt.timer", "[Timer]\n");
        put(
            &root,
            "/usr/lib/systemd/system/apt.service",
            "[Service]\nExecStart=/usr/lib/apt\n",
        );
        put(&root, "/etc/systemd/system/d.timer", "[Timer]\n");
        put(
            &root,
            "/etc/systemd/system/d.service",
            "[Service]\nExecStart=/bin/true\n",
        );
        put(&root, "/usr/lib/systemd/system/d.timer", "[Timer]\nUnit=save.service\n");
        // etcd's own service has no timer.
        put(
            &root,
            "/etc/systemd/system/etcd.service",
            "[Service]\nExecStart=etcd --listen-client-urls=https://127.0.0.1:2379\n",
        );
        let found = of_etcd(&root);
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            found,
            [
                "/etc/cron.d/backup",
                "/etc/cron.daily/script",
                "/etc/systemd/system/a.timer",
                "/etc/systemd/system/t@x.timer",
                "/lib/systemd/system/c.timer",
                "/usr/lib/systemd/system/b.timer",
                "/var/spool/cron/crontabs/root",
            ]
        );
    }
}
