//! STS as AWS has it, in front of moto: a request with a token needs no signature, and the token is checked. moto fails without
//! the one and does not do the other.

use std::net::Ipv4Addr;

use anyhow::Context as _;
use aws_sdk_sts::Client;
use aws_sdk_sts::primitives::DateTimeFormat as Format;
use percent_encoding::percent_decode_str;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::Server;
use super::proxy::{request, response};

/// Starts it; returns its address. It ends with its runtime.
pub async fn start(server: &Server, token: &'static str) -> anyhow::Result<String> {
    let moto = server.sts()?;
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
    let parameter = |name: &str| {
        let pair = form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        percent_decode_str(pair.unwrap_or_default()).decode_utf8_lossy().into_owned()
    };
    let (status, body) = if parameter("WebIdentityToken") == token {
        let asked = moto.assume_role().role_arn(parameter("RoleArn")).role_session_name(parameter("RoleSessionName"));
        let key = asked.send().await?.credentials.context("moto gives no key")?;
        let expiration = key.expiration.fmt(Format::DateTime)?;
        let (id, secret, session) = (key.access_key_id, key.secret_access_key, key.session_token);
        (
            200,
            format!(
                "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                 <AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\
                 <SessionToken>{session}</SessionToken><Expiration>{expiration}</Expiration>\
                 </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
            ),
        )
    } else {
        let error = "<Code>InvalidIdentityToken</Code><Message>The token is not known</Message>";
        (400, format!("<ErrorResponse><Error><Type>Sender</Type>{error}</Error></ErrorResponse>"))
    };
    Ok(stream.write_all(response(status, &body).as_bytes()).await?)
}
