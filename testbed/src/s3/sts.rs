//! STS as AWS has it, in front of moto: a request with a token needs no signature, and the token is checked. moto fails without
//! the one and does not do the other.

use std::net::Ipv4Addr;

use http::Method;
use s3_client::{Client, Credentials, Request, Settings};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::Server;
use super::proxy::{request, response};

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
    let (head, form) = request(&mut stream).await?;
    anyhow::ensure!(!head.to_lowercase().contains("authorization:"), "it is signed");
    let form = String::from_utf8_lossy(&form).into_owned();
    let (status, body) = if form.split('&').any(|pair| pair == format!("WebIdentityToken={token}")) {
        let request = Request::new(Method::POST, "/").header("content-type", "application/x-www-form-urlencoded");
        let response = moto.request(request.body(form)).await?;
        (response.status, String::from_utf8_lossy(&response.body).into_owned())
    } else {
        let error = "<Code>InvalidIdentityToken</Code><Message>The token is not known</Message>";
        (400, format!("<ErrorResponse><Error><Type>Sender</Type>{error}</Error></ErrorResponse>"))
    };
    Ok(stream.write_all(response(status, &body).as_bytes()).await?)
}
