//! STS as AWS has it, in front of moto: a request with a token needs no signature, and the token is looked at. moto fails without
//! the one and does not do the other.

use std::net::Ipv4Addr;

use http::Method;
use s3_client::{Client, Credentials, Request, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::Server;

/// Starts it; returns its address. It ends with its runtime.
pub async fn start(server: &Server, token: &'static str) -> anyhow::Result<String> {
    let mut settings = Settings::new(&server.endpoint);
    settings.service = "sts".to_owned();
    let moto = Client::new(settings, Credentials::new(&server.access_key, &server.secret_key))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, moto.clone(), token));
        }
    });
    Ok(endpoint)
}

async fn answer(mut stream: TcpStream, moto: Client, token: &str) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let form = loop {
        stream.read_buf(&mut text).await?;
        let text = String::from_utf8_lossy(&text);
        let Some((head, form)) = text.split_once("\r\n\r\n") else { continue };
        anyhow::ensure!(!head.to_lowercase().contains("authorization:"), "it is signed");
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if length == Some(form.len()) {
            break form.to_owned();
        }
    };
    let (status, body) = if form.split('&').any(|pair| pair == format!("WebIdentityToken={token}")) {
        let request = Request::new(Method::POST, "/").header("content-type", "application/x-www-form-urlencoded");
        let response = moto.request(request.body(form)).await?;
        (response.status, String::from_utf8_lossy(&response.body).into_owned())
    } else {
        let error = "<Code>InvalidIdentityToken</Code><Message>The token is not known</Message>";
        (400, format!("<ErrorResponse><Error><Type>Sender</Type>{error}</Error></ErrorResponse>"))
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} -\r\nContent-Type: text/xml\r\nContent-Length: {length}\r\nConnection: close");
    Ok(stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?)
}
