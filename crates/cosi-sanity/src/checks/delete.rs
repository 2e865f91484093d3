//! Checks of `DriverDeleteBucket`.

use driver_rpc::Code;

use super::{CANCEL_FRACTIONS, bucket, existing, run_concurrently, timed};
use crate::bed::TestBed;
use crate::check::{Verdict, ok, refused};

pub(crate) async fn repeated(bed: &TestBed) -> Verdict {
    let id = bucket(bed).await?.id;
    ok("deleting a bucket", bed.delete(&id).await)?;
    ok("deleting it again", bed.delete(&id).await)
}

pub(crate) async fn concurrent(bed: &TestBed) -> Verdict {
    let id = bucket(bed).await?.id;
    let deletions: Result<Vec<_>, _> = run_concurrently(bed, || bed.delete(&id)).await.into_iter().collect();
    ok("deleting a bucket by several calls at a time", deletions).map(drop)
}

pub(crate) async fn given_up(bed: &TestBed) -> Verdict {
    let id = bucket(bed).await?.id;
    let (deleted, took) = timed(bed.delete(&id)).await;
    ok("deleting a bucket", deleted)?;
    for part in CANCEL_FRACTIONS {
        let id = bucket(bed).await?.id;
        let _ = bed.delete_once(&bed.api.with_timeout(took.mul_f64(part)), &id).await;
        ok("deleting a bucket after a call that was cancelled", bed.delete(&id).await)?;
    }
    Ok(())
}

pub(crate) async fn other_buckets(bed: &TestBed) -> Verdict {
    let (first, second) = (bucket(bed).await?, bucket(bed).await?);
    ok("deleting a bucket", bed.delete(&first.id).await)?;
    ok("getting another bucket", existing::get(bed, &second.id, bed.protocol as i32).await).map(drop)
}

pub(crate) async fn without_id(bed: &TestBed) -> Verdict {
    refused("a request without an id", Code::InvalidArgument, bed.delete("").await)
}
