//! Regions as a proxy for moto, which finds every bucket in all regions: here a bucket exists only in the region where
//! it was created, and S3 redirects requests that are signed for another region.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::Server;
use super::proxy::{ProxiedRequest, ProxyAction, start_with};

/// Starts the proxy and returns its address. It ends with its runtime.
pub async fn start(moto: &Server) -> anyhow::Result<String> {
    let regions = Mutex::new(BTreeMap::new());
    start_with(moto, Duration::ZERO, move |asked| {
        let Some((bucket, region)) = bucket(asked).zip(region(asked)) else { return ProxyAction::Answered };
        let mut regions = regions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if asked.makes_bucket(bucket) {
            regions.entry(bucket.to_owned()).or_insert_with(|| region.to_owned());
        }
        match regions.get(bucket) {
            Some(known) if known != region => return ProxyAction::Refused(301, "PermanentRedirect"),
            _ => {}
        }
        if asked.head.starts_with(&format!("DELETE /{bucket}/ ")) {
            regions.remove(bucket);
        }
        ProxyAction::Answered
    })
    .await
}

/// The bucket in the path.
fn bucket(asked: &ProxiedRequest) -> Option<&str> {
    let path = asked.head.split(' ').nth(1)?.strip_prefix('/')?;
    path.split(['/', '?']).next().filter(|bucket| !bucket.is_empty())
}

/// The region that the request is signed for: `Credential=KEY/DATE/REGION/s3/aws4_request`.
fn region(asked: &ProxiedRequest) -> Option<&str> {
    asked.head.split_once("Credential=")?.1.split('/').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bucket_and_region_of_a_request() {
        let head = "GET /photos/?tagging HTTP/1.1\r\nauthorization: AWS4-HMAC-SHA256 Credential=AKID/20261127/eu-west-1/s3/aws4_request";
        let asked = |head: &str| ProxiedRequest { number: 1, head: head.to_owned(), body: String::new() };
        let request = asked(head);
        assert_eq!((bucket(&request), region(&request)), (Some("photos"), Some("eu-west-1")));
        assert_eq!(bucket(&asked("POST / HTTP/1.1")), None);
        assert_eq!(region(&asked("GET /photos/cat HTTP/1.1")), None);
    }
}
