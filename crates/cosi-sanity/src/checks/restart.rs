//! Checks of a driver that restarts.

use tokio::process::Command;

use super::{access as new_access, bucket as new_bucket, ensure_same_id};
use crate::bed::TestBed;
use crate::check::{Stop, Verdict, fail, ok};

pub(crate) async fn bucket(bed: &TestBed) -> Verdict {
    let request = bed.create_request();
    let before = ok("creating a bucket", bed.create(&request).await)?;
    restart(bed).await?;
    let after = ok("creating it again after a restart", bed.create(&request).await)?;
    ensure_same_id("buckets", &[before.id, after.id])
}

pub(crate) async fn access(bed: &TestBed) -> Verdict {
    let (request, before) = new_access(bed, &new_bucket(bed).await?).await?;
    restart(bed).await?;
    let after = ok("granting it again after a restart", bed.grant(&request).await)?;
    ensure_same_id("accounts", &[before.account_id, after.account_id])
}

/// Runs the restart command, and waits until the driver is ready.
async fn restart(bed: &TestBed) -> Verdict {
    let Some(command) = &bed.options.restart_command else {
        return Err(Stop::Skip("requires --restart-command".to_owned()));
    };
    let status = Command::new("sh").args(["-c", command]).kill_on_drop(true).status().await;
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => return fail(format!("the command for the restart ended with {status}")),
        Err(error) => return fail(format!("the command for the restart cannot run: {error}")),
    }
    ok("DriverGetInfo after a restart", bed.retry(|| bed.api.info()).await).map(drop)
}
