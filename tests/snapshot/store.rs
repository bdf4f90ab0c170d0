//! The store under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use etcd_client::Client;
use quantykube_tests::{Server, free_port, program};
use serde_json::Value;
use tempfile::TempDir;

use crate::world::{Kind, run};

/// A running store in a folder of its own.
pub struct Store {
    pub server: Server,
    pub port: u16,
    pub folder: TempDir,
}

impl Store {
    pub fn start() -> Store {
        Self::start_in(tempfile::tempdir().unwrap())
    }

    /// Serves `folder/store.qks`.
    pub fn start_in(folder: TempDir) -> Store {
        let port = free_port();
        let mut command = Command::new(program("quantykube-store"));
        command
            .arg("--data")
            .arg(folder.path().join("store.qks"))
            .args(["--listen", &format!("127.0.0.1:{port}")]);
        let mut server = Server::start(&mut command, &folder.path().join("store.log"));
        server.wait_for_port(port, Duration::from_secs(30));
        Store { server, port, folder }
    }

    /// Stops it and starts it again.
    pub fn restarted(mut self) -> Store {
        assert!(self.server.stop(Duration::from_secs(20)).success());
        let Store { folder, .. } = self;
        Self::start_in(folder)
    }

    /// One from a snapshot.
    pub fn restored(snapshot: &Path, extra: &[&str]) -> (Store, Value) {
        let folder = tempfile::tempdir().unwrap();
        let output = restore(snapshot, &folder.path().join("store.qks"), extra);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let result = last_event(&output);
        assert_eq!(result["event"], "result");
        (Self::start_in(folder), result)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub async fn client(&self) -> Client {
        Client::connect([self.url()], None).await.unwrap()
    }

    /// `etcdctl snapshot save`.
    pub fn save(&self) -> PathBuf {
        let path = self.folder.path().join("snapshot.db");
        let _ = std::fs::remove_file(&path);
        run(Kind::Current
            .etcdctl()
            .arg(format!("--endpoints={}", self.url()))
            .args(["snapshot", "save"])
            .arg(&path));
        path
    }
}

/// `quantykube-store restore --json`.
pub fn restore(snapshot: &Path, to: &Path, extra: &[&str]) -> Output {
    let mut command = Command::new(program("quantykube-store"));
    command.arg("restore").arg(snapshot).arg("--to").arg(to).arg("--json");
    command.args(extra).output().unwrap()
}

/// The last of the JSON events.
pub fn last_event(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}
