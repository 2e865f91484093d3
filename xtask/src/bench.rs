//! `cargo xtask bench`

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, ensure};
use testbed::control_plane::{ControlPlane, STATE_VARIABLE, Settings};
use testbed::guard::{Guard, Running};
use testbed::progress::{self, SharedProgress};

use crate::build::{self, Profile};
use crate::report;

/// Runs a measurement, or all of them for the report.
pub(crate) async fn run(arguments: &[String], guard: &Guard) -> anyhow::Result<ExitCode> {
    if arguments.first().is_some_and(|name| name == "report") {
        return report::run(arguments, guard).await;
    }
    measure(arguments, guard, &progress::terminal()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a measurement, built in release mode, on its own control plane.
pub(crate) async fn measure(arguments: &[String], guard: &Guard, progress: &SharedProgress) -> anyhow::Result<()> {
    let measurement = arguments.first().map(String::as_str);
    let features: &[&str] = if measurement == Some("journal") { &["without-journal"] } else { &[] };
    // The package has a second program, which the first one expects next to itself.
    let program = build::program(Profile::Release, "bench", features, guard, progress).await?.with_file_name("bench");
    let package = match measurement {
        Some("soak" | "removal" | "directories") => Some("hostpath-provisioner"),
        Some("nfs-handover") => Some("nfs-provisioner"),
        Some("csi") => Some("csi-provisioner"),
        _ => None,
    };
    let provisioner = match package {
        Some(package) => Some((package, build::program(Profile::Release, package, &[], guard, progress).await?)),
        None => None,
    };
    // Logging of requests would affect the measurement, so it is enabled only when requests are counted.
    let counts_requests = match measurement {
        Some("csi") => arguments.get(1).is_some_and(|name| name == "burst"),
        other => other == Some("buckets"),
    };
    let needs_node = measurement == Some("csi") && arguments.get(1).is_some_and(|name| name == "suite");
    let driver =
        if needs_node { Some(build::program(Profile::Release, "csi-sim", &[], guard, progress).await?) } else { None };
    let settings = Settings { audit: counts_requests, node: needs_node, ..Settings::default() };
    let control_plane = ControlPlane::start(&settings, guard, progress).await?;
    let mut command = if measurement == Some("directories") {
        // In its own mount namespace, the measurement's file system is unmounted when the process ends.
        let mut command = build::command(guard, "unshare");
        command.arg("--mount").arg(&program);
        command
    } else {
        build::command(guard, &program)
    };
    command.args(arguments).env(STATE_VARIABLE, control_plane.state().path());
    command.envs(provisioner.map(|(package, path)| (package.to_uppercase().replace('-', "_"), path)));
    command.envs(driver.map(|path| ("CSI_SIM", path)));
    let status = match measurement {
        // The soak test prints its own progress.
        Some("soak") => Running::start(command)?.ended().await.map_err(anyhow::Error::from),
        _ => with_progress(command, progress).await,
    };
    control_plane.stop().await?;
    let status = status?;
    ensure!(status.success(), "the measurement ended with {status}");
    Ok(())
}

/// Runs a program that prints its figures at the end, and shows progress until then.
async fn with_progress(mut command: Command, progress: &SharedProgress) -> anyhow::Result<ExitStatus> {
    command.stdout(Stdio::piped());
    let mut program = Running::start(command)?;
    let output = program.take_stdout().context("the measurement has no output")?;
    let shown = progress.clone();
    let reader = std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).for_each(|line| shown.output(&line));
    });
    let status = progress::during(progress, "measuring", program.ended()).await?;
    reader.join().ok().context("the measurement's output was lost")?;
    Ok(status)
}
