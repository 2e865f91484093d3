//! The checks, by call.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use crate::Protocol;
use crate::api::{Access, Bucket, GrantRequest};
use crate::bed::TestBed;
use crate::check::{Stop, Verdict, ensure, ok};

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod existing;
pub(crate) mod grant;
pub(crate) mod info;
pub(crate) mod restart;
pub(crate) mod revoke;

/// Fractions of a call's usual duration after which it is cancelled.
const CANCEL_FRACTIONS: [f64; 3] = [0.25, 0.5, 0.75];

/// Creates a bucket.
async fn bucket(bed: &TestBed) -> Result<Bucket, Stop> {
    ok("creating a bucket", bed.create(&bed.create_request()).await)
}

/// Creates an account with access to the bucket.
async fn access(bed: &TestBed, bucket: &Bucket) -> Result<(GrantRequest, Access), Stop> {
    let request = bed.grant_request(&[&bucket.id]);
    let access = ok("granting access", bed.grant(&request).await)?;
    Ok((request, access))
}

/// Returns a protocol that the driver does not support: a known one if possible, or else an unknown number.
fn unsupported(bed: &TestBed) -> i32 {
    let is_free = |protocol: &i32| !bed.supported.contains(protocol) && *protocol != bed.protocol as i32;
    Protocol::ALL.map(|protocol| protocol as i32).into_iter().find(is_free).unwrap_or(99)
}

/// Runs as many concurrent calls as the options specify.
async fn run_concurrently<A, F: Future<Output = A>>(bed: &TestBed, call: impl Fn() -> F) -> Vec<A> {
    join_all((0..bed.options.concurrency.max(2)).map(|_| call())).await
}

async fn timed<A>(call: impl Future<Output = A>) -> (A, Duration) {
    let started = Instant::now();
    let answer = call.await;
    (answer, started.elapsed())
}

/// Checks that an ID is not empty, and that it is within the limits that `v1alpha2` specifies.
fn id(what: &str, id: &str, has_limits: bool) -> Verdict {
    ensure(!id.is_empty(), || format!("the id of the {what} is empty"))?;
    if has_limits {
        ensure(id.len() <= 2048, || format!("the id of the {what} has {} characters", id.len()))?;
        let is_allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '.');
        ensure(id.chars().all(is_allowed), || {
            format!("the id of the {what} has characters that are not allowed: {id}")
        })?;
    }
    Ok(())
}

/// Checks that all IDs are equal.
fn ensure_same_id(what: &str, ids: &[String]) -> Verdict {
    let differs = ids.iter().find(|id| **id != ids[0]);
    match differs {
        None => Ok(()),
        Some(other) => crate::check::fail(format!("one name has two {what}: {} and {other}", ids[0])),
    }
}
