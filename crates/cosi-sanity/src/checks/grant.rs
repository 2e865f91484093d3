//! Checks of `DriverGrantBucketAccess`.

use driver_rpc::Code;

use super::{CANCEL_FRACTIONS, access, bucket, ensure_same_id, run_concurrently, timed, unsupported};
use crate::Version;
use crate::api::{Access, Fields, GrantRequest};
use crate::bed::{TestBed, map};
use crate::check::{Stop, Verdict, ensure, fail, ok, refused};

/// The authentication type that requires the name of a ServiceAccount.
const SERVICE_ACCOUNT: i32 = 2;

pub(crate) async fn id(bed: &TestBed) -> Verdict {
    let (_, access) = access(bed, &bucket(bed).await?).await?;
    super::id("account", &access.account_id, bed.api.version == Version::V1alpha2)
}

pub(crate) async fn credentials(bed: &TestBed) -> Verdict {
    let (_, access) = access(bed, &bucket(bed).await?).await?;
    ensure_single_protocol(bed, "credentials", &access.credentials)
}

pub(crate) async fn buckets(bed: &TestBed) -> Verdict {
    let bucket = bucket(bed).await?;
    let (request, access) = access(bed, &bucket).await?;
    ensure_requested_buckets(&request, &access)
}

pub(crate) async fn bucket_info(bed: &TestBed) -> Verdict {
    let (_, access) = access(bed, &bucket(bed).await?).await?;
    access.buckets.iter().try_for_each(|bucket| ensure_single_protocol(bed, "info", &bucket.info))
}

pub(crate) async fn several_buckets(bed: &TestBed) -> Verdict {
    let (first, second) = (bucket(bed).await?, bucket(bed).await?);
    let request = bed.grant_request(&[&first.id, &second.id]);
    match bed.grant(&request).await {
        Ok(access) => ensure_requested_buckets(&request, &access),
        other => refused("access to two buckets", Code::OutOfRange, other),
    }
}

pub(crate) async fn repeated(bed: &TestBed) -> Verdict {
    let (request, first) = access(bed, &bucket(bed).await?).await?;
    let second = ok("granting it again", bed.grant(&request).await)?;
    ensure_same_id("accounts", &[first.account_id, second.account_id])
}

pub(crate) async fn other_parameters(bed: &TestBed) -> Verdict {
    if bed.options.other_access_parameters.is_empty() {
        return Err(Stop::Skip("requires --other-access-parameters".to_owned()));
    }
    let (request, _) = access(bed, &bucket(bed).await?).await?;
    let other = GrantRequest { parameters: map(&bed.options.other_access_parameters), ..request };
    refused("its name with other parameters", Code::AlreadyExists, bed.grant(&other).await)
}

pub(crate) async fn other_name(bed: &TestBed) -> Verdict {
    let bucket = bucket(bed).await?;
    let ((_, first), (_, second)) = (access(bed, &bucket).await?, access(bed, &bucket).await?);
    ensure(first.account_id != second.account_id, || format!("two names have one account: {}", first.account_id))
}

pub(crate) async fn concurrent(bed: &TestBed) -> Verdict {
    let request = bed.grant_request(&[&bucket(bed).await?.id]);
    let granted = run_concurrently(bed, || bed.grant(&request)).await;
    let ids: Result<Vec<_>, _> = granted.into_iter().map(|access| access.map(|access| access.account_id)).collect();
    ensure_same_id("accounts", &ok("granting access by several calls at a time", ids)?)
}

pub(crate) async fn given_up(bed: &TestBed) -> Verdict {
    let bucket = bucket(bed).await?;
    let (first, took) = timed(access(bed, &bucket)).await;
    first?;
    for part in CANCEL_FRACTIONS {
        let request = bed.grant_request(&[&bucket.id]);
        let _ = bed.grant_once(&bed.api.with_timeout(took.mul_f64(part)), &request).await;
        let repeated = ok("granting access after a call that was cancelled", bed.grant(&request).await)?;
        let again = ok("granting it again", bed.grant(&request).await)?;
        ensure_same_id("accounts", &[repeated.account_id, again.account_id])?;
    }
    Ok(())
}

pub(crate) async fn unsupported_protocol(bed: &TestBed) -> Verdict {
    invalid(bed, "a protocol that is not supported", |request| request.protocol = unsupported(bed)).await
}

pub(crate) async fn without_name(bed: &TestBed) -> Verdict {
    invalid(bed, "a request without a name", |request| request.account = String::new()).await
}

pub(crate) async fn without_bucket(bed: &TestBed) -> Verdict {
    invalid(bed, "a request without a bucket", |request| request.buckets = Vec::new()).await
}

pub(crate) async fn without_protocol(bed: &TestBed) -> Verdict {
    invalid(bed, "a request without a protocol", |request| request.protocol = 0).await
}

pub(crate) async fn without_authentication_type(bed: &TestBed) -> Verdict {
    invalid(bed, "a request without a type of authentication", |request| request.authentication = 0).await
}

pub(crate) async fn without_service_account(bed: &TestBed) -> Verdict {
    invalid(bed, "a request without the name of its ServiceAccount", |request| request.authentication = SERVICE_ACCOUNT)
        .await
}

pub(crate) async fn without_access_mode(bed: &TestBed) -> Verdict {
    invalid(bed, "a request without a mode of access", |request| request.mode = 0).await
}

/// Checks that a grant for a new bucket is invalid after this change.
async fn invalid(bed: &TestBed, what: &str, change: impl FnOnce(&mut GrantRequest)) -> Verdict {
    let mut request = bed.grant_request(&[&bucket(bed).await?.id]);
    change(&mut request);
    refused(what, Code::InvalidArgument, bed.grant(&request).await)
}

/// Checks that the answer has complete fields for the protocol, and none for others.
fn ensure_single_protocol(bed: &TestBed, what: &str, found: &[Fields]) -> Verdict {
    let [fields] = found else {
        return fail(format!("there are {what} for {} protocols, and not for one", found.len()));
    };
    let (protocol, missing) = (&fields.protocol, &fields.missing);
    ensure(*protocol == bed.protocol.to_string(), || {
        format!("there are {what} for {protocol}, and not for {}", bed.protocol)
    })?;
    ensure(missing.is_empty(), || format!("the {what} for {protocol} lack {}", missing.join(", ")))
}

/// Checks that the answer contains each requested bucket exactly once.
fn ensure_requested_buckets(request: &GrantRequest, access: &Access) -> Verdict {
    let mut asked: Vec<&String> = request.buckets.iter().collect();
    let mut granted: Vec<&String> = access.buckets.iter().map(|bucket| &bucket.id).collect();
    asked.sort();
    granted.sort();
    ensure(asked == granted, || format!("access to {asked:?} was requested, but the answer contains {granted:?}"))
}
