//! Attempts of a bucket provisioner that end at a chosen request.

use std::cmp::Ordering;
use std::time::Duration;

use anyhow::Context;

use crate::s3::proxy::{self, ProxiedRequest, ProxyAction, Upstreams};

/// Checks that an attempt may end after any of its requests: deleting the claim removes all leftovers, and another
/// attempt continues. `provision` sends its requests to the address that it receives; `server` is the address of the
/// object store. Returns the number of requests of a complete attempt.
pub async fn attempts_can_end_after_any_request(
    server: &str,
    provision: impl AsyncFn(&str) -> anyhow::Result<()>,
    delete: impl AsyncFn() -> anyhow::Result<()>,
    assets: impl AsyncFn() -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<u64> {
    let mut last = 0;
    for goes_on in [false, true] {
        for ends_after in 1.. {
            let broken = start_proxy_closing_after(server, ends_after).await?;
            if provision(&broken).await.is_ok() {
                last = ends_after;
                delete().await?;
                break;
            }
            if goes_on {
                provision(server).await.with_context(|| format!("after request {ends_after}"))?;
            }
            delete().await.with_context(|| format!("after request {ends_after}"))?;
            assert_eq!(assets().await?, [""; 0], "after request {ends_after}");
        }
    }
    Ok(last)
}

/// Starts a proxy that closes connections after this number of requests, and returns its address.
pub async fn start_proxy_closing_after(server: &str, requests: u64) -> anyhow::Result<String> {
    let decide = move |asked: &ProxiedRequest| match asked.number.cmp(&requests) {
        Ordering::Less => ProxyAction::Answered,
        Ordering::Equal => ProxyAction::Unanswered,
        Ordering::Greater => ProxyAction::Lost,
    };
    proxy::start_with(Upstreams::from(server), Duration::ZERO, decide).await
}
