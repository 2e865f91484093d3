//! The demo on the user's own cluster. It lists the objects that it will create, and always removes them afterwards.

use std::io::{BufRead, IsTerminal, stdin};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt};
use testbed::cluster::{self, eventually};
use testbed::control_plane::Existing;
use testbed::guard::Guard;
use testbed::progress::{self, SharedProgress};

use super::report::Report;
use super::stage::Stage;
use super::{CLAIM, CLASS, LIMIT, NAMESPACE, objects, show};
use crate::build::{self, Profile};
use crate::signals;

pub(crate) async fn run(context: &str, yes: bool, guard: &Guard) -> anyhow::Result<ExitCode> {
    let progress = progress::terminal();
    let existing = Existing::of_context(context, guard).await?;
    let client = existing.client();
    let found = cluster::existing(&client, &objects()).await?;
    ensure!(
        found.is_empty(),
        "the cluster already has objects with these names, and the demo changes only its own objects: {}",
        found.join(", ")
    );
    if !yes && !confirm(context, &existing.state().server, &progress)? {
        progress.output("No object was created.");
        return Ok(ExitCode::FAILURE);
    }
    let mut report = Report::new(progress.clone());
    report.begin("build hostpath-provisioner");
    let program = build::program(Profile::Dev, "hostpath-provisioner", &[], guard, &progress).await?;
    report.done();

    let mut stage = Stage::on(existing);
    let (shown, code) = tokio::select! {
        biased;
        signal = signals::any() => {
            let (name, code) = signal?;
            progress.output(&format!("{name}: removing the objects"));
            (Ok(()), ExitCode::from(code))
        }
        shown = show(&mut stage, &program, &mut report) => (shown.map(drop), ExitCode::SUCCESS),
    };
    let shown = shown.with_context(|| stage.failure());
    // The provisioner must still be running, because only it removes the volume.
    let cleared = clear(&client, &mut report).await;
    let ended = stage.end(&mut report).await;
    shown?;
    cleared?;
    ended?;
    report.summary(None);
    Ok(code)
}

/// Lists the objects that will be created, and asks for confirmation.
fn confirm(context: &str, server: &str, progress: &SharedProgress) -> anyhow::Result<bool> {
    progress.output(&format!("In the cluster of the context {context}, {server}, the demo creates these objects, and removes them at its end:"));
    for object in objects() {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        progress.output(&format!("    {} {}", text(&object["kind"]), text(&object["metadata"]["name"])));
    }
    progress.output(&format!("    PersistentVolumeClaim {CLAIM}, and its PersistentVolume"));
    progress.output(
        "The provisioner is a process on this machine, and the volume is a directory on it. The demo starts no pods.",
    );
    ensure!(
        stdin().is_terminal(),
        "there is no terminal for the confirmation, so no object was created; --yes skips the confirmation"
    );
    progress.output("Continue? [y/N]");
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Removes the created objects from the cluster.
async fn clear(client: &Client, report: &mut Report) -> anyhow::Result<()> {
    report.begin("remove the objects from the cluster");
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    match claims.delete(CLAIM, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        deleted => drop(deleted?),
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut left = Vec::new();
    let gone = eventually(LIMIT, async || {
        left = volumes.list(&ListParams::default()).await?.items;
        left.retain(|volume| {
            volume.spec.as_ref().is_some_and(|spec| spec.storage_class_name.as_deref() == Some(CLASS))
        });
        Ok(left.is_empty().then_some(()))
    });
    let gone = report.waiting(gone).await?;
    cluster::remove(client, &objects()).await?;
    let absent = eventually(LIMIT, async || Ok(cluster::existing(client, &objects()).await?.is_empty().then_some(())));
    let absent = report.waiting(absent).await?;
    if gone.is_none() {
        let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
        bail!("volumes are left; remove their finalizers and delete them: {}", names.join(", "));
    }
    absent.with_context(|| format!("the namespace {NAMESPACE} is still being deleted"))?;
    report.done();
    Ok(())
}
