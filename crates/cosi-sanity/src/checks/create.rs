//! Checks of `DriverCreateBucket`.

use driver_rpc::Code;

use super::{CANCEL_FRACTIONS, bucket, ensure_same_id, run_concurrently, timed, unsupported};
use crate::api::CreateRequest;
use crate::bed::{TestBed, map};
use crate::check::{Stop, Verdict, ensure, ok, refused};
use crate::{Protocol, Version};

pub(crate) async fn id(bed: &TestBed) -> Verdict {
    super::id("bucket", &bucket(bed).await?.id, bed.api.version == Version::V1alpha2)
}

pub(crate) async fn repeated(bed: &TestBed) -> Verdict {
    let request = bed.create_request();
    let first = ok("creating a bucket", bed.create(&request).await)?;
    let second = ok("creating it again", bed.create(&request).await)?;
    ensure_same_id("buckets", &[first.id, second.id])
}

pub(crate) async fn other_parameters(bed: &TestBed) -> Verdict {
    if bed.options.other_bucket_parameters.is_empty() {
        return Err(Stop::Skip("requires --other-bucket-parameters".to_owned()));
    }
    let request = bed.create_request();
    let first = ok("creating a bucket", bed.create(&request).await)?;
    let other = CreateRequest { parameters: map(&bed.options.other_bucket_parameters), ..request.clone() };
    refused("its name with other parameters", Code::AlreadyExists, bed.create(&other).await)?;
    let again = ok("creating it again", bed.create(&request).await)?;
    ensure_same_id("buckets", &[first.id, again.id])
}

pub(crate) async fn other_name(bed: &TestBed) -> Verdict {
    let (first, second) = (bucket(bed).await?, bucket(bed).await?);
    ensure(first.id != second.id, || format!("two names have one bucket: {}", first.id))
}

pub(crate) async fn concurrent(bed: &TestBed) -> Verdict {
    let request = bed.create_request();
    let buckets = run_concurrently(bed, || bed.create(&request)).await;
    let ids: Result<Vec<_>, _> = buckets.into_iter().map(|bucket| bucket.map(|bucket| bucket.id)).collect();
    ensure_same_id("buckets", &ok("creating a bucket by several calls at a time", ids)?)
}

pub(crate) async fn given_up(bed: &TestBed) -> Verdict {
    let (first, took) = timed(bucket(bed)).await;
    first?;
    for part in CANCEL_FRACTIONS {
        let request = bed.create_request();
        let hurried = bed.api.with_timeout(took.mul_f64(part));
        let _ = bed.create_once(&hurried, &request).await;
        let repeated = ok("creating a bucket after a call that was cancelled", bed.create(&request).await)?;
        let again = ok("creating it again", bed.create(&request).await)?;
        ensure_same_id("buckets", &[repeated.id, again.id])?;
    }
    Ok(())
}

pub(crate) async fn protocols(bed: &TestBed) -> Verdict {
    let supported: Vec<_> = bed.supported.iter().filter_map(|number| Protocol::of(*number)).collect();
    if supported.is_empty() {
        return Err(Stop::Skip("the driver supports no protocol".to_owned()));
    }
    for protocol in &supported {
        let request = CreateRequest { protocols: vec![*protocol as i32], ..bed.create_request() };
        let bucket = ok(&format!("creating a bucket with {protocol}"), bed.create(&request).await)?;
        let has = &bucket.protocols;
        ensure(has.contains(protocol), || format!("a bucket with {protocol} has info for {has:?}"))?;
        ensure(has.iter().all(|one| supported.contains(one)), || {
            format!("only {supported:?} are supported, not {has:?}")
        })?;
    }
    Ok(())
}

pub(crate) async fn without_protocols(bed: &TestBed) -> Verdict {
    let request = CreateRequest { protocols: Vec::new(), ..bed.create_request() };
    match bed.create(&request).await {
        Ok(bucket) => {
            let is_supported = |one: &Protocol| bed.supported.is_empty() || bed.supported.contains(&(*one as i32));
            let has = &bucket.protocols;
            ensure(!has.is_empty() && has.iter().all(is_supported), || format!("the bucket has info for {has:?}"))
        }
        other => refused("a bucket without protocols", Code::InvalidArgument, other),
    }
}

pub(crate) async fn unsupported_protocol(bed: &TestBed) -> Verdict {
    let request = CreateRequest { protocols: vec![unsupported(bed)], ..bed.create_request() };
    refused("a protocol that is not supported", Code::InvalidArgument, bed.create(&request).await)
}

pub(crate) async fn without_name(bed: &TestBed) -> Verdict {
    let request = CreateRequest { name: String::new(), ..bed.create_request() };
    refused("a request without a name", Code::InvalidArgument, bed.create(&request).await)
}
