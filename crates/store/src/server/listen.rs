//! Accepting connections and serving each in a task of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::front::Front;
use super::tls::Certificates;
use crate::log::log;

/// Cancelled streams that may wait to be noticed before a client counts as an attacker. API servers cancel thousands of
/// watches at once when they lose a connection of their own.
const RESET_STREAMS_MAX: usize = 100_000;

/// How much a client may send ahead on one stream and on one connection.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// A client that says nothing is asked this often whether it is there, and given this long to answer.
const PING_EVERY: Duration = Duration::from_secs(60);
const PING_ANSWER: Duration = Duration::from_secs(20);

/// How long a client may take for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// After a failed accept (too many open files), the next is tried this much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds, so that the address may be taken over from a server that just ended.
pub fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Serves clients until told to stop; gives back once nothing new is accepted. Each connection holds a clone of `alive`
/// until it has ended.
pub async fn clients(
    listener: TcpListener,
    certificates: Option<Arc<Certificates>>,
    front: Front,
    mut stop: watch::Receiver<bool>,
    alive: tokio::sync::mpsc::Sender<()>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                log!(warning, "cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (front, certificates) = (front.clone(), certificates.clone());
        let (stop, alive) = (stop.clone(), alive.clone());
        tokio::spawn(async move {
            match certificates {
                None => serve(stream, front, stop).await,
                Some(certificates) => secure(stream, &certificates, front, stop).await,
            }
            drop(alive);
        });
    }
}

async fn secure(stream: TcpStream, certificates: &Certificates, front: Front, stop: watch::Receiver<bool>) {
    let peer = stream.peer_addr();
    let handshake = tokio::time::timeout(HANDSHAKE, certificates.acceptor().accept(stream)).await;
    let error = match handshake {
        Ok(Ok(stream)) => return serve(stream, front, stop).await,
        // A probe that only opens a connection is no news.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "timed out".to_owned(),
    };
    let peer = peer.map_or_else(|_| "a client".to_owned(), |peer| peer.to_string());
    log!(warning, "TLS handshake with {peer} failed: {error}");
}

async fn serve<I>(stream: I, front: Front, mut stop: watch::Receiver<bool>)
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(front.streams)
        .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(None)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_ANSWER)
        .auto_date_header(false);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    let connection = builder.serve_connection(TokioIo::new(stream), front);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is its client's affair: lost ones are daily life.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Serves the pages alone, over plain HTTP.
pub async fn pages(listener: TcpListener, front: Front, mut stop: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let front = front.clone();
                tokio::spawn(async move {
                    let mut builder = hyper::server::conn::http1::Builder::new();
                    builder.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
                    let pages = hyper::service::service_fn(|request| front.page(request));
                    let _ = builder.serve_connection(TokioIo::new(stream), pages).await;
                });
            }
            Err(error) => {
                log!(warning, "cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
