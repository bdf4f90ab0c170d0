//! The server's log: one line per event on standard error, `LEVEL: message`.

/// Writes a line. Unlike `eprintln!` it does not end the server when nobody reads the log any more.
macro_rules! log {
    ($level:ident, $($message:tt)*) => {{
        use std::io::Write as _;
        let line = format!(concat!(stringify!($level), ": {}\n"), format_args!($($message)*));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }};
}

pub(crate) use log;
