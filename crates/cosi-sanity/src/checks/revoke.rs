//! Checks of `DriverRevokeBucketAccess`.

use driver_rpc::Code;

use super::{PARTS, access, at_a_time, bucket, timed};
use crate::api::GrantRequest;
use crate::bed::Bed;
use crate::check::{Verdict, ok, refused};

pub(crate) async fn repeated(bed: &Bed) -> Verdict {
    let (granted, access) = access(bed, &bucket(bed).await?).await?;
    ok("revoking access", bed.revoke(&access.account_id, &granted).await)?;
    ok("revoking it again", bed.revoke(&access.account_id, &granted).await)
}

pub(crate) async fn concurrent(bed: &Bed) -> Verdict {
    let (granted, access) = access(bed, &bucket(bed).await?).await?;
    let calls = at_a_time(bed, || bed.revoke(&access.account_id, &granted)).await;
    ok("revoking access by several calls at a time", calls.into_iter().collect::<Result<Vec<_>, _>>()).map(drop)
}

pub(crate) async fn given_up(bed: &Bed) -> Verdict {
    let bucket = bucket(bed).await?;
    let (granted, first) = access(bed, &bucket).await?;
    let (revoked, took) = timed(bed.revoke(&first.account_id, &granted)).await;
    ok("revoking access", revoked)?;
    for part in PARTS {
        let (granted, access) = access(bed, &bucket).await?;
        let hurried = bed.api.with_timeout(took.mul_f64(part));
        let _ = bed.revoke_once(&hurried, &access.account_id, &granted).await;
        let revoked = bed.revoke(&access.account_id, &granted).await;
        ok("revoking access after a call that was cancelled", revoked)?;
    }
    Ok(())
}

pub(crate) async fn after_deletion(bed: &Bed) -> Verdict {
    let bucket = bucket(bed).await?;
    let (granted, access) = access(bed, &bucket).await?;
    ok("revoking access", bed.revoke(&access.account_id, &granted).await)?;
    ok("deleting the bucket", bed.delete(&bucket.id).await)?;
    ok("revoking access after the bucket was deleted", bed.revoke(&access.account_id, &granted).await)
}

pub(crate) async fn without_account(bed: &Bed) -> Verdict {
    let (granted, _) = access(bed, &bucket(bed).await?).await?;
    refused("a request without an account", Code::InvalidArgument, bed.revoke("", &granted).await)
}

pub(crate) async fn without_bucket(bed: &Bed) -> Verdict {
    let (granted, access) = access(bed, &bucket(bed).await?).await?;
    let wrong = GrantRequest { buckets: Vec::new(), ..granted };
    // This calls the API directly, so that the access stays recorded for cleanup.
    let result = bed.settle(|| bed.api.revoke(&access.account_id, &wrong)).await;
    refused("a request without a bucket", Code::InvalidArgument, result)
}
