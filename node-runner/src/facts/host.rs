//! The machine itself: who it is, what it has room for, which ports are free.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use crate::facts::Root;

/// The first line of a small file, without white space around it; `None` where there is none.
pub fn line_of(root: &Root, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.at(path)).ok()?;
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Bytes free for root on the file system of `path`, or of the nearest folder above it that exists.
pub fn free_bytes(root: &Root, path: &Path) -> Option<u64> {
    let mut at = path;
    loop {
        match rustix::fs::statvfs(root.at(at)) {
            Ok(stat) => return Some(stat.f_bfree.saturating_mul(stat.f_frsize)),
            Err(rustix::io::Errno::NOENT) => at = at.parent()?,
            Err(_) => return None,
        }
    }
}

/// Why nobody could listen there now; `None` where the port is free.
pub fn port_taken(address: SocketAddr) -> Option<String> {
    TcpListener::bind(address).err().map(|error| error.to_string())
}

/// Bytes of memory that programs may still take without swapping, as the kernel estimates it.
pub fn available_memory(root: &Root) -> Option<u64> {
    let text = fs::read_to_string(root.at("/proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// How long the machine has been running.
pub fn uptime(root: &Root) -> Option<Duration> {
    let seconds: f64 = line_of(root, "/proc/uptime")?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// What SELinux does with what is not allowed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Selinux {
    /// The kernel has none, or it is switched off.
    Off,
    /// It only writes down what it would refuse.
    Permissive,
    /// It refuses.
    Enforcing,
}

/// Asks the kernel's own file system of it.
pub fn selinux(root: &Root) -> Selinux {
    match line_of(root, "/sys/fs/selinux/enforce").as_deref() {
        None => Selinux::Off,
        Some("0") => Selinux::Permissive,
        Some(_) => Selinux::Enforcing,
    }
}

/// Days since 1970-01-01 of a date of the Gregorian calendar; `None` for none.
pub fn days_of_date(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Years that begin in March: the leap day is the last one.
    let year = if month < 3 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    Some(before + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// The other way round: year, month and day.
pub fn date_of_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (of_month, month) = (
        day - (153 * month + 2) / 5 + 1,
        if month < 10 { month + 3 } else { month - 9 },
    );
    (era * 400 + year + u64::from(month < 3), month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn a_taken_port_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(port_taken(address).is_some());
        drop(listener);
        assert_eq!(port_taken(address), None);
    }

    #[test]
    fn space_is_asked_of_the_nearest_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(free_bytes(&root, Path::new("/var/lib/none")).unwrap() > 0);
    }

    #[test]
    fn dates_and_days_agree() {
        assert_eq!(days_of_date(1970, 1, 1), Some(0));
        assert_eq!(days_of_date(2000, 2, 29), Some(11_016));
        assert_eq!(days_of_date(2000, 3, 1), Some(11_017));
        let mut last = None;
        for days in 0..60_000 {
            let (year, month, day) = date_of_days(days);
            assert_eq!(days_of_date(year, month, day), Some(days));
            assert!(last < Some((year, month, day)), "{days}");
            last = Some((year, month, day));
        }
        assert_eq!(last, Some((2134, 4, 10)));
        for (year, month, day) in [(1969, 1, 1), (2000, 0, 1), (2000, 13, 1), (2000, 1, 32), (99_999, 1, 1)] {
            assert_eq!(days_of_date(year, month, day), None);
        }
    }

    #[test]
    fn memory_uptime_and_selinux_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert_eq!((available_memory(&root), uptime(&root)), (None, None));
        put(&root, "/proc/meminfo", "MemTotal:  9 kB\nMemAvailable:    1024 kB\n");
        put(&root, "/proc/uptime", "12.50 20.00\n");
        assert_eq!(available_memory(&root), Some(1 << 20));
        assert_eq!(uptime(&root), Some(Duration::from_millis(12_500)));
        assert_eq!(selinux(&root), Selinux::Off);
        put(&root, "/sys/fs/selinux/enforce", "0");
        assert_eq!(selinux(&root), Selinux::Permissive);
        put(&root, "/sys/fs/selinux/enforce", "1");
        assert_eq!(selinux(&root), Selinux::Enforcing);
    }
}
