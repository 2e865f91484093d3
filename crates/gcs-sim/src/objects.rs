//! Objects by S3's protocol, with keys of service accounts: signatures and the bucket's policy are checked.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Method;
use percent_encoding::percent_decode_str;
use s3_client::Credentials;
use s3_client::sign::{Rule, Scope, Signable, authorization};

use super::{Asked, Model, Reply};

impl Model {
    pub(super) fn s3(&mut self, asked: &Asked) -> Reply {
        let Some(email) = self.signer(asked) else { return xml(403, "SignatureDoesNotMatch") };
        let path = percent_decode_str(&asked.path[1..]).decode_utf8_lossy().into_owned();
        let (name, object) = path.split_once('/').unwrap_or((&path, ""));
        let next = self.next();
        let Some(bucket) = self.buckets.get_mut(name) else { return xml(404, "NoSuchBucket") };
        let member = format!("serviceAccount:{email}");
        let bindings = bucket.policy["bindings"].as_array().cloned().unwrap_or_default();
        let has = |roles: &[&str]| {
            bindings.iter().any(|binding| {
                let members = binding["members"].as_array().cloned().unwrap_or_default();
                roles.contains(&binding["role"].as_str().unwrap_or_default())
                    && members.contains(&member.clone().into())
            })
        };
        let exists = bucket.objects.contains_key(object);
        let role = |role: &str| format!("roles/storage.{role}");
        let [user, viewer, creator, reader] =
            ["objectUser", "objectViewer", "objectCreator", "legacyBucketReader"].map(role);
        let allowed = match (asked.method.as_str(), object.is_empty()) {
            ("GET" | "HEAD", false) => has(&[&user, &viewer]),
            ("GET" | "HEAD", true) => has(&[&reader]),
            // Those who only create cannot replace.
            ("PUT", false) => has(&[&user]) || (!exists && has(&[&creator])),
            ("DELETE", false) => has(&[&user]),
            _ => false,
        };
        if !allowed {
            return xml(403, "AccessDenied");
        }
        let versioning = bucket.metadata["versioning"]["enabled"] == true;
        match asked.method {
            Method::PUT => {
                let generations = bucket.objects.entry(object.to_owned()).or_default();
                if !versioning {
                    generations.clear();
                }
                generations.push((next, asked.body.clone()));
                Reply { status: 200, body: Bytes::new() }
            }
            Method::DELETE => {
                bucket.objects.remove(object);
                Reply { status: 204, body: Bytes::new() }
            }
            _ if object.is_empty() => Reply { status: 200, body: "<ListBucketResult/>".into() },
            _ => match bucket.objects.get(object).and_then(|generations| generations.last()) {
                Some((_, body)) => Reply { status: 200, body: body.clone() },
                None => xml(404, "NoSuchKey"),
            },
        }
    }

    /// The service account whose key has signed.
    fn signer(&self, asked: &Asked) -> Option<String> {
        let text = |name: &str| asked.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let header = text("authorization")?;
        let id = header.strip_prefix("AWS4-HMAC-SHA256 Credential=")?.split('/').next()?;
        let key = self.keys.get(id).filter(|key| key.active && self.accounts.contains_key(&key.email))?;
        let region = header.split('/').nth(2)?;
        let (_, names) = header.split_once("SignedHeaders=")?;
        let headers: Vec<(String, String)> = names
            .split(',')
            .next()?
            .split(';')
            .map(|name| Some((name.to_owned(), text(name)?)))
            .collect::<Option<_>>()?;
        let path = percent_decode_str(&asked.path).decode_utf8_lossy().into_owned();
        let payload_hash = text("x-amz-content-sha256")?;
        let time = time_of(&text("x-amz-date")?)?;
        let scope = Scope { region, service: "s3", rule: Rule::S3, time };
        let (method, query) = (asked.method.as_str(), &asked.pairs);
        let signable = Signable { method, path: &path, query, headers: &headers, payload_hash: &payload_hash };
        let expected = authorization(&Credentials::new(id, &key.secret), scope, signable);
        (expected == header).then(|| key.email.clone())
    }
}

/// `20260102T030405Z`.
fn time_of(text: &str) -> Option<SystemTime> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    // Days since 1970 by the civil calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    let seconds = days * 86_400 + number(9..11)? * 3600 + number(11..13)? * 60 + number(13..15)?;
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

fn xml(status: u16, code: &str) -> Reply {
    Reply { status, body: format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>").into() }
}
