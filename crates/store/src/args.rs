//! The command line: what was typed ([`Args`]) and what the server can use ([`Config`]).

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use quantykube_base::{Exit, Failure};

use crate::commands::Command;
use crate::mvcc::Limits;
use crate::version::OWN_VERSION;

/// The shortest progress interval.
const PROGRESS_MIN: Duration = Duration::from_millis(100);

/// QuantyKube's store: one file behind the etcd v3 API.
#[derive(Debug, Parser)]
#[command(name = "quantykube-store", version = OWN_VERSION, subcommand_negates_reqs = true)]
pub struct Args {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The store's file; made if it is not there
    #[arg(long, value_name = "FILE", env = "QUANTYKUBE_STORE_DATA", required = true)]
    data: Option<PathBuf>,

    /// Where to serve clients
    #[arg(
        long,
        value_name = "ADDR",
        env = "QUANTYKUBE_STORE_LISTEN",
        default_value = "127.0.0.1:2479"
    )]
    listen: String,

    /// The server's certificate chain (PEM)
    #[arg(long, value_name = "FILE", env = "QUANTYKUBE_STORE_CERT_FILE")]
    cert_file: Option<OsString>,

    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", env = "QUANTYKUBE_STORE_KEY_FILE")]
    key_file: Option<OsString>,

    /// The certificate authorities that client certificates must come from (PEM)
    #[arg(long, value_name = "FILE", env = "QUANTYKUBE_STORE_TRUSTED_CA_FILE")]
    trusted_ca_file: Option<OsString>,

    /// Refuse clients without a certificate of --trusted-ca-file
    #[arg(
        long,
        value_name = "BOOL",
        env = "QUANTYKUBE_STORE_CLIENT_CERT_AUTH",
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    client_cert_auth: bool,

    /// Where to serve /metrics, /health, /livez, /readyz and /version over plain HTTP
    #[arg(long, value_name = "ADDR", env = "QUANTYKUBE_STORE_LISTEN_METRICS")]
    listen_metrics: Option<String>,

    /// How often watches that want it are told of progress, such as 5s or 10m
    #[arg(
        long,
        value_name = "DURATION",
        env = "QUANTYKUBE_STORE_WATCH_PROGRESS_NOTIFY_INTERVAL",
        default_value = "10m",
        value_parser = duration
    )]
    watch_progress_notify_interval: Duration,

    /// Most bytes the file may hold: 0 for 2 GiB, below 0 for no limit
    #[arg(
        long,
        value_name = "BYTES",
        env = "QUANTYKUBE_STORE_QUOTA_BACKEND_BYTES",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    quota_backend_bytes: i64,

    /// Most bytes of one write
    #[arg(long, value_name = "BYTES", env = "QUANTYKUBE_STORE_MAX_REQUEST_BYTES", default_value_t = Limits::default().request_bytes)]
    max_request_bytes: usize,

    /// Most calls and streams open at once on one connection; more wait in the client
    #[arg(
        long,
        value_name = "COUNT",
        env = "QUANTYKUBE_STORE_MAX_CONCURRENT_STREAMS",
        default_value_t = u32::MAX,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    max_concurrent_streams: u32,

    /// Most watch streams open at once on all connections; more are refused
    #[arg(
        long,
        value_name = "COUNT",
        env = "QUANTYKUBE_STORE_MAX_WATCH_STREAMS",
        default_value_t = Limits::default().watch_streams
    )]
    max_watch_streams: usize,

    /// Most watches at once on all streams; more are refused
    #[arg(long, value_name = "COUNT", env = "QUANTYKUBE_STORE_MAX_WATCHES", default_value_t = Limits::default().watches)]
    max_watches: usize,

    /// The member's name
    #[arg(long, value_name = "NAME", env = "QUANTYKUBE_STORE_NAME", default_value = "default")]
    name: String,
}

/// The files of the server's side of TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of client certificates; with them a client must have one.
    pub client_ca: Option<PathBuf>,
}

/// What the server can use.
#[derive(Clone, Debug)]
pub struct Config {
    /// The store's file.
    pub data: PathBuf,
    /// Where to serve clients.
    pub listen: SocketAddr,
    /// TLS, or plain text on a loopback address.
    pub tls: Option<TlsFiles>,
    /// Where to serve metrics.
    pub listen_metrics: Option<SocketAddr>,
    /// How often watches are told of progress.
    pub progress_every: Duration,
    /// The quota in bytes, 0 for none.
    pub quota: u64,
    /// Most bytes of one write.
    pub request_bytes: usize,
    /// Most calls and streams at once on one connection.
    pub streams: u32,
    /// Most watch streams on all connections.
    pub watch_streams: usize,
    /// Most watches on all streams.
    pub watches: usize,
    /// The member's name.
    pub name: String,
}

impl Args {
    /// Checks what was typed.
    pub fn config(self) -> Result<Config, Failure> {
        let data = self.data.ok_or_else(|| usage("--data is missing"))?;
        let listen = address("--listen", &self.listen)?;
        // A variable set to nothing is as good as none.
        let given = |path: Option<OsString>| path.filter(|path| !path.is_empty()).map(PathBuf::from);
        let (cert_file, key_file) = (given(self.cert_file), given(self.key_file));
        let trusted_ca_file = given(self.trusted_ca_file);
        let tls = match (cert_file, key_file) {
            (Some(cert), Some(key)) => Some(TlsFiles {
                cert,
                key,
                client_ca: trusted_ca_file,
            }),
            (None, None) if trusted_ca_file.is_none() && !self.client_cert_auth => None,
            _ => {
                return Err(usage("TLS needs both a certificate and its key").hint("give --cert-file and --key-file"));
            }
        };
        if self.client_cert_auth && tls.as_ref().is_some_and(|tls| tls.client_ca.is_none()) {
            let hint = "give --trusted-ca-file";
            return Err(usage("--client-cert-auth needs the authorities to check certificates against").hint(hint));
        }
        if tls.is_none() && !listen.ip().is_loopback() {
            let found =
                format!("{listen} is no loopback address, and without certificates clients are served in plain text");
            return Err(usage(found).hint("give --cert-file, --key-file and --trusted-ca-file, or listen on 127.0.0.1"));
        }
        let listen_metrics = match &self.listen_metrics {
            Some(text) if !text.is_empty() => Some(address("--listen-metrics", text)?),
            _ => None,
        };
        if let Some(metrics) = listen_metrics.filter(|metrics| !metrics.ip().is_loopback()) {
            let found = format!(
                "--listen-metrics {metrics} is no loopback address, and these pages are served in plain text to everyone"
            );
            return Err(usage(found).hint(
                "listen on 127.0.0.1; from elsewhere the same pages are at --listen, for clients with a certificate",
            ));
        }
        Ok(Config {
            data,
            listen,
            tls,
            listen_metrics,
            progress_every: self.watch_progress_notify_interval.max(PROGRESS_MIN),
            quota: match self.quota_backend_bytes {
                0 => Limits::default().quota,
                bytes => u64::try_from(bytes).unwrap_or(0),
            },
            request_bytes: self.max_request_bytes,
            streams: self.max_concurrent_streams,
            watch_streams: self.max_watch_streams,
            watches: self.max_watches,
            name: self.name,
        })
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "usage", message)
}

/// A literal address, or localhost: a static program asks no resolver.
fn address(flag: &str, text: &str) -> Result<SocketAddr, Failure> {
    let bare = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .unwrap_or(text);
    let literal = match bare.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => bare.to_owned(),
    };
    literal.parse().map_err(|_| {
        usage(format!("{flag} {text} is no address with a port"))
            .hint("give one such as 127.0.0.1:2479 or [::1]:2479; names other than localhost are not resolved")
    })
}

/// A duration as etcd's flags take it: numbers with units, such as 500ms, 5s, 1m30s, 1h.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is no duration; give one such as 500ms, 5s, 10m or 1m30s");
    let mut total = Duration::ZERO;
    let mut rest = text;
    if rest == "0" {
        return Ok(total);
    }
    while !rest.is_empty() || text.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let units = [("ms", 0.001), ("us", 0.000_001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let (unit, seconds) = units
            .into_iter()
            .find(|(unit, _)| rest.starts_with(unit))
            .ok_or_else(wrong)?;
        rest = &rest[unit.len()..];
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(line: &str) -> Result<Config, Failure> {
        let words = ["quantykube-store", "--data", "x.qks"]
            .into_iter()
            .chain(line.split_whitespace());
        Args::try_parse_from(words).expect("clap takes it").config()
    }

    #[test]
    fn the_defaults_are_plain_text_on_loopback() {
        let config = config("").unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:2479");
        assert!(config.tls.is_none() && config.listen_metrics.is_none());
        assert_eq!(config.quota, 2 << 30);
        assert_eq!(config.progress_every, Duration::from_secs(600));
    }

    #[test]
    fn plain_text_is_refused_elsewhere_and_half_a_tls_anywhere() {
        for line in [
            "--listen 0.0.0.0:2479",
            "--listen [::]:2479",
            "--listen node1:2479",
            "--cert-file c",
            "--client-cert-auth",
            "--cert-file c --key-file k --client-cert-auth",
            "--trusted-ca-file ca",
            "--listen-metrics 0.0.0.0:2481",
            "--listen-metrics [::]:2481",
            "--listen-metrics http://192.0.2.1:2481",
            "--listen 0.0.0.0:1 --cert-file c --key-file k --listen-metrics 0.0.0.0:2481",
        ] {
            assert_eq!(config(line).map(|_| ()).unwrap_err().exit, Exit::Usage, "{line}");
        }
        assert!(config("--listen [::1]:2479").is_ok());
        assert!(config("--listen localhost:0").is_ok());
        for line in ["--listen-metrics localhost:2481", "--listen-metrics http://[::1]:2481"] {
            assert!(config(line).unwrap().listen_metrics.is_some(), "{line}");
        }
        assert!(config("--listen 0.0.0.0:1 --cert-file c --key-file k --trusted-ca-file a --client-cert-auth").is_ok());
        assert!(
            config("--client-cert-auth=false --quota-backend-bytes -1")
                .unwrap()
                .quota
                == 0
        );
    }

    #[test]
    fn durations_are_read_as_etcd_reads_them() {
        for (text, millis) in [
            ("5s", 5000),
            ("100ms", 100),
            ("10m", 600_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
        ] {
            assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "5", "s", "5x", "-5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
