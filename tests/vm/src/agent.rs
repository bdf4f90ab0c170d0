//! Commands in the machine, over a port that a script of ours reads there (`files/vm-agent`).

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What a script in the machine ended with.
#[derive(Clone, Debug)]
pub struct Output {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

/// The host's end of the port.
pub struct Agent {
    stream: UnixStream,
    buffer: Vec<u8>,
    number: u64,
}

impl Agent {
    /// Connects to a machine that is on; its system may not be up yet.
    pub fn connect(path: &Path) -> Agent {
        let stream = UnixStream::connect(path).unwrap_or_else(|err| panic!("cannot reach {}: {err}", path.display()));
        stream
            .set_read_timeout(Some(Duration::from_millis(500)))
            .expect("a socket takes a timeout");
        Agent {
            stream,
            buffer: Vec::new(),
            // A request of an earlier connection may still be on its way.
            number: u64::from(std::process::id()) * 1_000_000,
        }
    }

    /// Runs a bash script; `None` if it has not ended after `at_most`. It may run on then, and those after it wait for it.
    pub fn run(&mut self, script: &str, at_most: Duration) -> Option<Output> {
        self.number += 1;
        let begun = Instant::now();
        let request = format!("\n{} {}\n", self.number, STANDARD.encode(script));
        self.stream.write_all(request.as_bytes()).ok()?;
        let wanted = format!("{} ", self.number);
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = String::from_utf8_lossy(&line).into_owned();
                if let Some(answer) = line.strip_prefix(&wanted) {
                    return Some(read(answer));
                }
            }
            if begun.elapsed() > at_most {
                return None;
            }
            let mut part = vec![0; 1 << 16];
            match self.stream.read(&mut part) {
                Ok(0) => return None,
                Ok(length) => self.buffer.extend_from_slice(&part[..length]),
                Err(err) if matches!(err.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return None,
            }
        }
    }
}

/// `CODE OUT= ERR=`, where the sign ends what may be empty.
fn read(answer: &str) -> Output {
    let mut words = answer.split_whitespace();
    let code = words.next().and_then(|word| word.parse().ok()).unwrap_or(-1);
    let mut text = || {
        let word = words.next().unwrap_or_default();
        let word = word.strip_suffix('=').unwrap_or(word);
        let bytes = STANDARD.decode(word).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Output {
        code,
        out: text(),
        err: text(),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn an_answer_is_read() {
        let output = read("3 aGVsbG8K= =\n");
        assert_eq!(
            (output.code, output.out.as_str(), output.err.as_str()),
            (3, "hello\n", "")
        );
        let output = read("0 YQ=== YWI==\n");
        assert_eq!((output.code, output.out.as_str(), output.err.as_str()), (0, "a", "ab"));
    }
}
