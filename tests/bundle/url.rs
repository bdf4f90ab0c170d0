//! Binaries from a URL: taken with their checksum, or not at all.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

use crate::workbench::{AMD64, OWN, Workbench, elf};

/// Answers one request on loopback with `status` and `body`, and says `length` for its length.
fn serve(status: &'static str, body: Vec<u8>, length: usize) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/releases/tool?v=1", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut request = String::new();
        reader.read_line(&mut request).unwrap();
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        let mut stream = reader.into_inner();
        stream.write_all(head.as_bytes()).unwrap();
        // A client that does not like the status may be gone already.
        let _ = stream.write_all(&body);
        request
    });
    (url, server)
}

fn spec(url: &str, body: &[u8]) -> String {
    let sha256 = hex::encode(Sha256::digest(body));
    format!("{OWN}binaries: [{{name: tool, url: '{url}', sha256: '{sha256}'}}]")
}

#[test]
fn a_binary_from_a_url() {
    let bench = Workbench::new();
    let body = elf(AMD64, true, 600_000, 5);
    let (url, server) = serve("200 OK", body.clone(), body.len());
    bench.build(&spec(&url, &body)).ok();
    assert!(server.join().unwrap().starts_with("GET /releases/tool?v=1 HTTP/1.1"));
    bench.run(&["extract", "out/b.tar.gz", "out"]).ok();
    let packed = std::fs::read(bench.path("out/quantykube-0.1.0-linux-amd64/bin/tool")).unwrap();
    assert!(packed == body);
    let shown = bench.run(&["inspect", "out/b.tar.gz"]).ok().out;
    assert!(shown.contains(&url), "{shown}");
}

#[test]
fn a_url_that_is_not_what_it_should_be() {
    let bench = Workbench::new();
    let body = elf(AMD64, true, 60_000, 5);
    let (url, server) = serve("200 OK", body.clone(), body.len());
    bench.refuses(
        &spec(&url, b"something else"),
        3,
        &[&url, "sha256 is", "the spec expects"],
    );
    server.join().unwrap();
    let (url, server) = serve("404 Not Found", Vec::new(), 0);
    bench.refuses(&spec(&url, &body), 1, &[&url, "404"]);
    server.join().unwrap();
    let (url, server) = serve("200 OK", body[..1000].to_vec(), body.len());
    bench.refuses(&spec(&url, &body), 1, &[&url, "broke off"]);
    server.join().unwrap();
    let other = elf(183, true, 60_000, 5);
    let (url, server) = serve("200 OK", other.clone(), other.len());
    bench.refuses(&spec(&url, &other), 4, &[&url, "for arm64"]);
    server.join().unwrap();
}
