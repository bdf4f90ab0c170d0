//! qemu's own control channel: one JSON object a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// A connection to the monitor of one machine.
pub struct Qmp {
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Connects, and agrees on nothing in particular.
    pub fn connect(path: &Path) -> Qmp {
        let stream = UnixStream::connect(path).unwrap_or_else(|err| panic!("cannot reach {}: {err}", path.display()));
        stream
            .set_read_timeout(Some(Duration::from_secs(300)))
            .expect("a socket takes a timeout");
        let mut qmp = Qmp {
            reader: BufReader::new(stream),
        };
        qmp.line();
        qmp.call("qmp_capabilities", json!({}));
        qmp
    }

    /// Calls a command, which must succeed, and returns what it answers.
    pub fn call(&mut self, command: &str, arguments: Value) -> Value {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.reader.get_mut(), "{request}").expect("the machine's monitor takes a command");
        loop {
            let answer = self.line();
            if let Some(error) = answer.get("error") {
                panic!("{command}: {error}");
            }
            if let Some(value) = answer.get("return") {
                return value.clone();
            }
        }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).expect("the machine's monitor answers");
        assert!(read > 0, "the machine has gone");
        serde_json::from_str(&line).unwrap_or_else(|err| panic!("{err}: {line}"))
    }
}
