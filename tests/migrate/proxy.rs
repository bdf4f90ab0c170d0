//! A wire between a client and an etcd that stops after so many bytes from etcd, until it is told to go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The proxy; it ends with the test's runtime.
pub struct Proxy {
    pub port: u16,
    passed: Arc<AtomicU64>,
    stop_at: u64,
    reached: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Proxy {
    /// Listens, and passes everything to `port` until `stop_at` bytes came back from there.
    pub async fn to(port: u16, stop_at: u64) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            passed: Arc::default(),
            stop_at,
            reached: Arc::default(),
            go_on: Arc::default(),
        };
        let (passed, reached, go_on) = (proxy.passed.clone(), proxy.reached.clone(), proxy.go_on.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (passed, reached, go_on) = (passed.clone(), reached.clone(), go_on.clone());
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                        return;
                    };
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_server, mut to_server) = server.into_split();
                    tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                    let mut buffer = vec![0; 32 << 10];
                    loop {
                        let Ok(read) = from_server.read(&mut buffer).await else {
                            return;
                        };
                        if read == 0 {
                            return;
                        }
                        let before = passed.fetch_add(read as u64, Ordering::SeqCst);
                        if before < stop_at && before + read as u64 >= stop_at {
                            reached.notify_one();
                            go_on.notified().await;
                        }
                        if to_client.write_all(&buffer[..read]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        proxy
    }

    /// Waits until the wire has stopped.
    pub async fn stopped(&self) {
        tokio::time::timeout(Duration::from_secs(60), self.reached.notified())
            .await
            .expect("the reading came so far");
        assert!(self.passed.load(Ordering::SeqCst) >= self.stop_at);
    }

    /// Lets everything through from now on.
    pub fn go_on(&self) {
        self.go_on.notify_one();
    }

    /// A source that goes through this wire.
    pub fn source(&self) -> quantykube_migrate::Source {
        quantykube_migrate::Source {
            endpoints: vec![format!("http://127.0.0.1:{}", self.port)],
            ..quantykube_migrate::Source::default()
        }
    }
}
