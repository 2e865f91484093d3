//! Single, plain HTTP requests.

use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sends a request to a server on loopback, and returns its response with status line and headers.
pub async fn ask(port: u16, request: &str, body: &str) -> anyhow::Result<String> {
    ask_with(port, request, "Content-Type: text/plain", body).await
}

/// Like [`ask`], with other headers.
pub async fn ask_with(port: u16, request: &str, headers: &str, body: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\nContent-Length: {length}");
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
