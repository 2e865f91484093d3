//! `cargo xtask bench`

use std::process::ExitCode;

use anyhow::ensure;
use e2e::control_plane::{ControlPlane, STATE_VARIABLE, Settings};
use e2e::guard::{Guard, Running};
use e2e::progress;

use crate::build;
use crate::test::PROVISIONER_VARIABLE;

/// Runs a measurement, built for release, on a control plane of its own.
pub(crate) async fn run(arguments: &[String], guard: &Guard) -> anyhow::Result<ExitCode> {
    let measurement = arguments.first().map(String::as_str);
    let features: &[&str] = if measurement == Some("journal") { &["without-journal"] } else { &[] };
    // The package has a second program, which the first one finds beside itself.
    let program = build::release(guard, "bench", features).await?.with_file_name("bench");
    let provisioner = match measurement {
        Some("soak") => Some(build::release(guard, "hostpath-provisioner", &[]).await?),
        _ => None,
    };
    let progress = progress::terminal();
    // Logging every request would be measured too.
    let control_plane = ControlPlane::start(&Settings::default(), guard, &progress).await?;
    let mut command = build::command(guard, &program);
    command.args(arguments).env(STATE_VARIABLE, control_plane.state().path());
    command.envs(provisioner.map(|path| (PROVISIONER_VARIABLE, path)));
    let status = Running::start(command)?.ended().await;
    control_plane.stop().await?;
    let status = status?;
    ensure!(status.success(), "the measurement ended with {status}");
    Ok(ExitCode::SUCCESS)
}
