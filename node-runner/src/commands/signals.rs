//! What a signal means while a move runs.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quantykube_journal::system::host::Host;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// From now on INT and TERM ask the move to put everything back, TERM while the system shuts down to stop where it is, and
/// the loss of the terminal means nothing.
pub fn listen(flag: Arc<AtomicUsize>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGINT => flag.store(Host::PUT_BACK, Ordering::SeqCst),
                SIGTERM if shutting_down() => flag.store(Host::STOP, Ordering::SeqCst),
                SIGTERM => flag.store(Host::PUT_BACK, Ordering::SeqCst),
                _ => {}
            }
        }
    });
    Ok(())
}

/// Whether systemd is taking the system down.
fn shutting_down() -> bool {
    let asked = Command::new("systemctl").arg("is-system-running").output();
    asked.is_ok_and(|output| output.stdout.trim_ascii() == b"stopping")
}
