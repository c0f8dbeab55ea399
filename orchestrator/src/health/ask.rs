//! Asks a watch of this machine, or of another, whether it is well.

use std::time::Duration;

use lake::clock::within;
use lake::{Context, Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long an answer is waited for.
const WITHIN: Duration = Duration::from_secs(8);
/// An answer is no longer than this.
const ANSWER_MAX: u64 = 64 * 1024;

/// Asks the watch at `address` (`127.0.0.1:8080`) for `path`; whether it is well, and what it says.
///
/// # Errors
/// [`ErrorKind::Store`] when nobody answers, or answers something else.
pub(crate) async fn ask(address: &str, path: &str) -> Result<(bool, String)> {
    let answer = within(WITHIN, exchange(address, path)).await;
    answer.unwrap_or_else(|| Err(Error::new(ErrorKind::Store, format!("{address} does not answer"))))
}

async fn exchange(address: &str, path: &str) -> Result<(bool, String)> {
    let doing = || format!("asking {address}");
    let mut stream = TcpStream::connect(address).await.context(doing)?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context(doing)?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut bytes).await.context(doing)?;
    let text = String::from_utf8_lossy(&bytes);
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split(' ').next());
    match (status, text.split_once("\r\n\r\n")) {
        (Some(status @ ("200" | "503")), Some((_, body))) => Ok((status == "200", body.to_owned())),
        _ => Err(Error::new(ErrorKind::Store, format!("what listens at {address} is no watch"))),
    }
}
