//! Checks of `DriverRevokeBucketAccess`.

use driver_rpc::Code;

use super::{CANCEL_FRACTIONS, access, bucket, run_concurrently, timed};
use crate::api::GrantRequest;
use crate::bed::TestBed;
use crate::check::{Verdict, ok, refused};

pub(crate) async fn repeated(bed: &TestBed) -> Verdict {
    let (granted, access) = access(bed, &bucket(bed).await?).await?;
    ok("revoking access", bed.revoke(&access.account_id, &granted).await)?;
    ok("revoking it again", bed.revoke(&access.account_id, &granted).await)
}

pub(crate) async fn concurrent(bed: &TestBed) -> Verdict {
    let (granted, access) = access(bed, &bucket(bed).await?).await?;
    let calls = run_concurrently(bed, || bed.revoke(&access.account_id, &granted)).await;
    ok("revoking access by several calls at a time", calls.into_iter().collect::<Result<Vec<_>, _>>()).map(drop)
}

pub(crate) async fn given_up(bed: &TestBed) -> Verdict {
    let bucket = bucket(bed).await?;
    let (granted, first) = access(bed, &bucket).await?;
    let (revoked, took) = timed(bed.revoke(&first.account_id, &granted)).await;
    ok("revoking access", revoked)?;
    for part in CANCEL_FRACTIONS {
        let (granted, access) = access(bed, &bucket).await?;
        let hurried = bed.api.with_timeout(took.mul_f64(part));
        let _ = bed.revoke_once(&hurried, &access.account_id, &granted).await;
        let revoked = bed.revoke(&access.account_id, &granted).await;
        ok("revoking access after a call that was cancelled", revoked)?;
    }
    Ok(())
}

pub(crate) async fn after_deletion(bed: &TestBed) -> Verdict {
    let bucket = bucket(bed).await?;
    let (granted, access) = access(bed, &bucket).await?;
    ok("revoking access", bed.revoke(&access.account_id, &granted).await)?;
    ok("deleting the bucket", bed.delete(&bucket.id).await)?;
    ok("revoking access after the bucket was deleted", bed.revoke(&access.account_id, &granted).await)
}

pub(crate) async fn without_account(bed: &TestBed) -> Verdict {
    let (granted, _) = access(bed, &bucket(bed).await?).await?;
    refused("a request without an account", Code::InvalidArgument, bed.revoke("", &granted).await)
}

pub(crate) async fn without_bucket(bed: &TestBed) -> Verdict {
    let (granted, access) = access(bed, &bucket(bed).await?).await?;
    let wrong = GrantRequest { buckets: Vec::new(), ..granted };
    // This calls the API directly, so that the access stays recorded for cleanup.
    let result = bed.retry(|| bed.api.revoke(&access.account_id, &wrong)).await;
    refused("a request without a bucket", Code::InvalidArgument, result)
}
