//! What systemd is told of a service of Type=notify.

use crate::log::log;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells systemd, if it is there to listen. A lost message is not worth ending for: systemd's own timeout judges.
pub fn notify(state: &str) {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        log!(warning, "cannot tell systemd {state}: {error}");
    }
}
