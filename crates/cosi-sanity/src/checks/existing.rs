//! Checks of `DriverGetExistingBucket`.

use driver_rpc::{Code, Error};

use super::{bucket, ensure_same_id, unsupported};
use crate::api::Bucket;
use crate::bed::{TestBed, map};
use crate::check::{Verdict, ensure, ok, refused};

pub(crate) async fn found(bed: &TestBed) -> Verdict {
    let made = bucket(bed).await?;
    let found = ok("getting an existing bucket", get(bed, &made.id, bed.protocol as i32).await)?;
    ensure_same_id("buckets", &[made.id, found.id])?;
    let has = &found.protocols;
    ensure(has.contains(&bed.protocol), || format!("a bucket with {} has info for {has:?}", bed.protocol))
}

pub(crate) async fn missing(bed: &TestBed) -> Verdict {
    let made = bucket(bed).await?;
    ok("deleting a bucket", bed.delete(&made.id).await)?;
    refused("a deleted bucket", Code::NotFound, get(bed, &made.id, bed.protocol as i32).await)
}

pub(crate) async fn unsupported_protocol(bed: &TestBed) -> Verdict {
    let made = bucket(bed).await?;
    let got = get(bed, &made.id, unsupported(bed)).await;
    refused("a protocol that is not supported", Code::InvalidArgument, got)
}

pub(crate) async fn without_id(bed: &TestBed) -> Verdict {
    refused("a request without an id", Code::InvalidArgument, get(bed, "", bed.protocol as i32).await)
}

/// Calls `DriverGetExistingBucket` for a bucket.
pub(super) async fn get(bed: &TestBed, id: &str, protocol: i32) -> Result<Bucket, Error> {
    let (protocols, parameters) = ([protocol], map(&bed.options.bucket_parameters));
    bed.retry(|| bed.api.existing(id, &protocols, &parameters)).await
}
