//! Hidden: sees that nobody but etcd itself is connected to etcd, right before it is copied.
//!
//! It covers every client of this machine and of others that holds a connection at that moment, also an idle one. A client
//! that comes later is seen by the copy itself where it writes before the copy ends, and by nobody after that.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use quantykube_base::{Exit, Failure};
use serde_json::json;

use crate::commands::Context;
use crate::facts::Root;

/// One line of `/proc/net/tcp`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    state: u8,
    inode: u64,
}

const ESTABLISHED: u8 = 0x01;
const SYN_RECEIVED: u8 = 0x03;
const LISTEN: u8 = 0x0a;

/// Succeeds where no other client is connected. `endpoint` is etcd's URL.
pub fn run(context: &Context, endpoint: &str) -> Result<Exit, Failure> {
    let port = endpoint
        .rsplit_once(':')
        .and_then(|(_, port)| port.trim_end_matches('/').parse().ok())
        .ok_or_else(|| Failure::new(Exit::Usage, "endpoint", format!("{endpoint} names no port")))?;
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Failed, "connections", "this node's connections cannot be listed").because(error)
    };
    let mut sockets = Vec::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        match fs::read_to_string(context.root.at(path)) {
            Ok(text) => sockets.extend(text.lines().filter_map(socket)),
            // A kernel without IPv6.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let owners = owners(&context.root);
    if !sockets.iter().any(|s| s.state == LISTEN && s.local.port() == port) {
        return Err(Failure::new(
            Exit::Failed,
            "etcd-away",
            format!("no process of this node listens on etcd's port {port} any more"),
        ));
    }
    let others = others(&sockets, port, &owners);
    if others.is_empty() {
        context
            .reporter
            .result("no other client is connected to etcd", json!({"quiet": true}));
        return Ok(Exit::Done);
    }
    let who: Vec<String> = others.iter().map(|other| who(&context.root, other)).collect();
    Err(Failure::new(
        Exit::Refused,
        "etcd-in-use",
        format!(
            "another client is connected to etcd: {}; what it writes would not reach the store",
            who.join(", ")
        ),
    )
    .hint("stop it, or let it use an etcd of its own, then try again"))
}

/// The far ends of connections to a port, with the local process that holds each, where one does. etcd's own are left out.
fn others(sockets: &[Socket], port: u16, owners: &BTreeMap<u64, u32>) -> Vec<(SocketAddr, Option<u32>)> {
    let listens = sockets.iter().filter(|s| s.state == LISTEN && s.local.port() == port);
    let servers: Vec<u32> = listens.filter_map(|s| owners.get(&s.inode).copied()).collect();
    let mut found = Vec::new();
    for server_end in sockets {
        if server_end.local.port() != port || !matches!(server_end.state, ESTABLISHED | SYN_RECEIVED) {
            continue;
        }
        let client_end = sockets
            .iter()
            .find(|s| s.local == server_end.remote && s.remote == server_end.local);
        let owner = client_end.and_then(|s| owners.get(&s.inode).copied());
        if owner.is_none_or(|pid| !servers.contains(&pid)) {
            found.push((server_end.remote, owner));
        }
    }
    found
}

fn who(root: &Root, (address, pid): &(SocketAddr, Option<u32>)) -> String {
    let Some(pid) = pid else {
        return format!("one at {address}");
    };
    let name = fs::read_to_string(root.at(format!("/proc/{pid}/comm"))).unwrap_or_default();
    format!("process {pid} ({})", name.trim())
}

/// Which process holds a socket, by the socket's number.
fn owners(root: &Root) -> BTreeMap<u64, u32> {
    let mut owners = BTreeMap::new();
    let processes = fs::read_dir(root.at("/proc")).into_iter().flatten().flatten();
    for entry in processes {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        for file in fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(file.path()).unwrap_or_default();
            let inode = target.to_str().and_then(|text| text.strip_prefix("socket:["));
            if let Some(inode) = inode.and_then(|text| text.strip_suffix(']')?.parse().ok()) {
                owners.insert(inode, pid);
            }
        }
    }
    owners
}

/// `  0: 0100007F:094B 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 12345 ...`
fn socket(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    Some(Socket {
        local: address(fields.get(1)?)?,
        remote: address(fields.get(2)?)?,
        state: u8::from_str_radix(fields.get(3)?, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// An address in words of the machine's own byte order, each as hexadecimal, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = ip
        .as_bytes()
        .chunks(8)
        .filter_map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .map(u32::to_ne_bytes)
        .collect();
    let ip = match words.as_slice() {
        [four] => IpAddr::V4(Ipv4Addr::from(*four)),
        [a, b, c, d] => {
            let bytes: Vec<u8> = [a, b, c, d].into_iter().flatten().copied().collect();
            let bytes: [u8; 16] = bytes.try_into().ok()?;
            // The same client, seen through a socket of the other family.
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_writes_them() {
        assert_eq!(address("0100007F:094B").unwrap().to_string(), "127.0.0.1:2379");
        assert_eq!(
            address("00000000000000000000000001000000:094B").unwrap().to_string(),
            "[::1]:2379"
        );
        assert_eq!(
            address("0000000000000000FFFF00000A00000A:1").unwrap().to_string(),
            "10.0.0.10:1"
        );
        assert_eq!(address("sl"), None);
    }

    #[test]
    fn etcd_itself_does_not_count_and_everybody_else_does() {
        let at = |text: &str| text.parse().unwrap();
        let of = |local, remote, state, inode| Socket {
            local: at(local),
            remote: at(remote),
            state,
            inode,
        };
        let nobody = "0.0.0.0:0";
        let mut sockets = vec![
            of("127.0.0.1:2379", nobody, LISTEN, 1),
            of("10.0.0.10:2379", nobody, LISTEN, 2),
            // etcd to itself.
            of("127.0.0.1:2379", "127.0.0.1:5000", ESTABLISHED, 3),
            of("127.0.0.1:5000", "127.0.0.1:2379", ESTABLISHED, 4),
            // Its metrics, and a connection that is closing.
            of("127.0.0.1:2381", "127.0.0.1:5001", ESTABLISHED, 5),
            of("127.0.0.1:2379", "127.0.0.1:5002", 0x08, 6),
        ];
        let owners = BTreeMap::from([(1, 70), (2, 70), (3, 70), (4, 70), (8, 99)]);
        assert_eq!(others(&sockets, 2379, &owners), []);
        sockets.push(of("127.0.0.1:2379", "127.0.0.1:5003", ESTABLISHED, 7));
        sockets.push(of("127.0.0.1:5003", "127.0.0.1:2379", ESTABLISHED, 8));
        sockets.push(of("10.0.0.10:2379", "10.0.0.99:5004", ESTABLISHED, 9));
        let expected = [(at("127.0.0.1:5003"), Some(99)), (at("10.0.0.99:5004"), None)];
        assert_eq!(others(&sockets, 2379, &owners), expected);
    }

    #[test]
    fn the_connections_of_this_machine_are_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let root = Root::new("/");
        let text = || fs::read_to_string("/proc/net/tcp").unwrap();
        let seen = |text: &str| {
            let sockets: Vec<Socket> = text.lines().filter_map(socket).collect();
            others(&sockets, port, &owners(&root)).len()
        };
        assert_eq!(seen(&text()), 0);
        // A child of another process would be another client; this one is the server itself, and does not count.
        let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _server = listener.accept().unwrap();
        assert_eq!(seen(&text()), 0);
        assert!(client.local_addr().is_ok());
    }
}
