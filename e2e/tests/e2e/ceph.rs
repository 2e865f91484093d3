//! A Ceph cluster with radosgw: it answers requests, and ends without leftovers.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use testbed::ceph::{ADMIN, Ceph, State};
use testbed::control_plane::{self, STATE_VARIABLE};
use testbed::guard::Running;
use testbed::progress;

#[tokio::test]
async fn ceph_answers_requests() -> anyhow::Result<()> {
    let ceph = State::for_tests()?;
    let user = ceph.radosgw_admin(&["user", "info", "--uid", ADMIN]).await?;
    assert_eq!(user["keys"][0]["access_key"], ceph.access_key.as_str());
    for endpoint in [&ceph.endpoint, &ceph.https_endpoint] {
        let answer = ceph.get(endpoint, "/").await?;
        ensure!(answer.contains("<ListAllMyBucketsResult"), "{endpoint} answers {answer}");
    }
    let error = ceph.radosgw_admin(&["user", "info", "--uid", "nobody"]).await.unwrap_err().to_string();
    ensure!(error.contains("could not fetch user info"), "{error}");
    Ok(())
}

#[tokio::test]
async fn ceph_is_paused_restarted_and_stopped() -> anyhow::Result<()> {
    let ceph = Ceph::start(&State::for_tests()?.guard(), &progress::silent()).await?;
    let state = State::read(&ceph.state().path())?;
    let ask = || tokio::time::timeout(Duration::from_secs(1), state.get(&state.endpoint, "/"));

    state.pause().await?;
    ensure!(ask().await.is_err(), "a paused radosgw answers");
    state.resume()?;
    state.get(&state.endpoint, "/").await?;

    state.radosgw_admin(&["user", "create", "--uid", "somebody", "--display-name", "somebody"]).await?;
    state.stop_rgw().await?;
    ensure!(ask().await?.is_err(), "a stopped radosgw answers");
    state.start_rgw().await?;
    state.get(&state.https_endpoint, "/").await?;
    state.radosgw_admin(&["user", "info", "--uid", "somebody"]).await?;

    ceph.stop()?;
    ensure!(!state.dir.exists(), "{} still exists", state.dir.display());
    gone(&state).await
}

/// The test starts itself as a child process, which owns the cluster and is killed.
#[tokio::test]
async fn ceph_ends_with_its_owner() -> anyhow::Result<()> {
    const OUTPUT: &str = "E2E_CEPH_OWNER";
    let control_plane = control_plane::State::for_tests()?;
    let guard = control_plane.guard();
    if let Some(output) = std::env::var_os(OUTPUT) {
        let ceph = Ceph::start(&guard, &progress::silent()).await?;
        let (output, unfinished) = (PathBuf::from(&output), PathBuf::from(&output).with_extension("new"));
        std::fs::write(&unfinished, ceph.state().path().to_string_lossy().as_bytes())?;
        std::fs::rename(unfinished, output)?;
        return std::future::pending().await;
    }
    let dir = tempfile::tempdir()?;
    let output = dir.path().join("state");
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", "ceph::ceph_ends_with_its_owner"]).stdout(Stdio::null());
    command.env(OUTPUT, &output).env(STATE_VARIABLE, control_plane.path());
    let mut owner = Running::start(command)?;
    while !output.exists() {
        ensure!(owner.try_wait()?.is_none(), "the owner ended early");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let state = State::read(&PathBuf::from(std::fs::read_to_string(&output)?))?;
    // This sends SIGKILL.
    drop(owner);
    gone(&state).await?;
    std::fs::remove_dir_all(&state.dir).context("the owner's directory does not exist")
}

async fn gone(state: &State) -> anyhow::Result<()> {
    for daemon in &state.components {
        let id = daemon.id.context("the daemon has never run")?;
        ensure!(id.ended_within(Duration::from_secs(3)).await, "{} still runs", daemon.name);
    }
    Ok(())
}
