//! Answers `GET /healthz` and `GET /readyz`, and nothing else, by HTTP/1.1: one request a connection, of a few kilobytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lake::clock::within;
use lake::{Clock, Context, Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::{Answer, Health, STORAGE_ANSWERS_WITHIN};

/// A request is no longer than this.
const REQUEST_MAX: usize = 8 * 1024;
/// Nor does it take longer.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// Requests at the same time: who asks slowly must not keep others from asking.
const REQUESTS_MAX: usize = 256;

/// Listens at an address, and answers for as long as the process is there. Returns the address that it is.
///
/// # Errors
/// [`ErrorKind::Store`] when somebody else listens there or this machine has no such address, which may pass;
/// [`ErrorKind::Spec`] when it is not allowed.
pub(crate) async fn serve(address: SocketAddr, health: Health) -> Result<SocketAddr> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        use std::io::ErrorKind::{AddrInUse, AddrNotAvailable};
        let may_pass = matches!(error.kind(), AddrInUse | AddrNotAvailable);
        let kind = if may_pass { ErrorKind::Store } else { ErrorKind::Spec };
        let refused = Error::new(kind, format!("`{address}` cannot be listened at")).with_source(error);
        refused.hint("another program may listen there; `--listen 127.0.0.1:0` takes a port that is free")
    })?;
    let address = listener.local_addr().context(|| "listening".to_owned())?;
    tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(REQUESTS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let health = health.clone();
                    tokio::spawn(async move {
                        // Who does not read the answer gets none.
                        let _ = within(REQUEST_WITHIN + STORAGE_ANSWERS_WITHIN, answer(stream, &health)).await;
                        drop(permit);
                    });
                }
                // Too many open files, say: it may pass.
                Err(error) => {
                    tracing::debug!(%error, "a connection was not accepted");
                    Clock::system().sleep(Duration::from_secs(1)).await;
                }
            }
        }
    });
    Ok(address)
}

/// Reads one request and answers it.
async fn answer(mut stream: TcpStream, health: &Health) -> std::io::Result<()> {
    let request = within(REQUEST_WITHIN, head(&mut stream)).await.unwrap_or(Ok(Head::Slow))?;
    let (status, body) = match &request {
        Head::Of(request) => respond(request, health).await,
        Head::Slow => ("408 Request Timeout", "{\"error\":\"the request takes too long\"}".to_owned()),
        Head::Large => ("431 Request Header Fields Too Large", "{\"error\":\"the request is too large\"}".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\ncache-control: no-store\r\n\
         allow: GET, HEAD\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    if !matches!(&request, Head::Of(request) if request.starts_with("HEAD ")) {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

/// The head of a request.
enum Head {
    /// Its first line.
    Of(String),
    Slow,
    Large,
}

async fn head(stream: &mut TcpStream) -> std::io::Result<Head> {
    let (mut held, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let read = stream.read(&mut buffer).await?;
        held.extend_from_slice(&buffer[..read]);
        let is_whole = held.windows(4).any(|part| part == b"\r\n\r\n") || read == 0;
        if is_whole {
            let line = held.split(|byte| *byte == b'\r' || *byte == b'\n').next().unwrap_or_default();
            return Ok(Head::Of(String::from_utf8_lossy(line).into_owned()));
        }
        if held.len() > REQUEST_MAX {
            return Ok(Head::Large);
        }
    }
}

/// The answer to the first line of a request.
async fn respond(line: &str, health: &Health) -> (&'static str, String) {
    let mut words = line.split(' ');
    let (method, target, version) = (words.next(), words.next().unwrap_or_default(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
        return ("400 Bad Request", "{\"error\":\"this is no request of HTTP/1.1\"}".to_owned());
    }
    if !matches!(method, Some("GET" | "HEAD")) {
        return ("405 Method Not Allowed", "{\"error\":\"only GET and HEAD\"}".to_owned());
    }
    let Answer { is_well, body } = match target.split('?').next() {
        Some("/healthz") => health.alive(),
        Some("/readyz") => health.ready().await,
        _ => return ("404 Not Found", "{\"error\":\"there are /healthz and /readyz\"}".to_owned()),
    };
    (if is_well { "200 OK" } else { "503 Service Unavailable" }, format!("{body}\n"))
}
