//! The folders for `kubectl apply -k`, rendered by helm with one file for each template.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use super::{Files, Provisioner, Variant, project, read};
use crate::control_plane::fnv1a;
use crate::process::output;

/// The image tag: the version.
const TAG: &str = env!("CARGO_PKG_VERSION");

const HELM_LABELS: [&str; 2] = ["helm.sh/chart: ", "app.kubernetes.io/managed-by: "];

/// Renders a variant with the given helm.
pub fn render(helm: &Path, provisioner: &Provisioner, variant: &Variant) -> anyhow::Result<Files> {
    let mut command = Command::new(helm);
    command.args(["template", provisioner.name]).arg(provisioner.chart()).args(["--namespace", provisioner.name]);
    command.args(["--skip-tests", "--set-json", "namespace.create=true"]);
    command.args(provisioner.required_options());
    command.args(variant.values.iter().flat_map(|value| ["--set-json", *value]));
    let rendered = String::from_utf8(output(command.current_dir(project()))?)?;
    let folder = folder(provisioner, variant);
    let mut files = Files::new();
    for document in rendered.split("---\n# Source: ").skip(1) {
        let (source, text) = document.split_once('\n').context("helm has rendered nothing")?;
        let name = source.rsplit('/').next().unwrap_or_default();
        if variant.only.is_some_and(|only| only != name) {
            continue;
        }
        let file = files.entry(folder.join(name)).or_default();
        if !file.is_empty() {
            file.push_str("---\n");
        }
        // Helm's own labels would be wrong on objects that kubectl applies.
        let of_helm = |line: &&str| HELM_LABELS.iter().any(|label| line.trim_start().starts_with(label));
        text.trim().lines().filter(|line| !of_helm(line)).for_each(|line| file.extend([line, "\n"]));
    }
    ensure!(!files.is_empty(), "{} renders nothing", folder.display());
    let kustomization = kustomization(provisioner, variant, &files)?;
    files.insert(folder.join("kustomization.yaml"), kustomization);
    Ok(files)
}

/// True if the rendered files come from the current chart and have not been edited. It needs no helm.
pub fn is_up_to_date(provisioner: &Provisioner, variant: &Variant) -> anyhow::Result<bool> {
    let folder = folder(provisioner, variant);
    let mut files = Files::new();
    for entry in fs::read_dir(project().join(&folder)).with_context(|| folder.display().to_string())? {
        let path = folder.join(entry?.file_name());
        files.insert(path.clone(), read(&path)?);
    }
    let found = files.remove(&folder.join("kustomization.yaml"));
    Ok(found == Some(kustomization(provisioner, variant, &files)?))
}

fn folder(provisioner: &Provisioner, variant: &Variant) -> std::path::PathBuf {
    Path::new("deploy").join(provisioner.folder).join(variant.folder)
}

/// The kustomization. It contains a fingerprint of the files and of their sources.
fn kustomization(provisioner: &Provisioner, variant: &Variant, files: &Files) -> anyhow::Result<String> {
    let mut sources = templates(&provisioner.chart())?;
    for part in ["Chart.yaml", "values.yaml", "files"] {
        collect(&provisioner.chart().join(part), &mut sources)?;
    }
    let texts = sources.values().chain(files.values()).map(String::as_str).chain(variant.values.iter().copied());
    let fingerprint = fnv1a(texts);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let resources: String = files.keys().map(|path| format!("  - {}\n", name(path))).collect();
    let (folder, image, about) = (folder(provisioner, variant), provisioner.name, variant.about);
    Ok(format!(
        "# {about}\n#   kubectl apply -k {}\n# Rendered by `cargo xtask manifests` from {} ({fingerprint:016x}).\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{resources}images:\n  \
         # The registry of the image. Without a registry, import the image on each node.\n  \
         - name: localhost/{image}\n    newName: localhost/{image}\n    newTag: {TAG}\n",
        folder.display(),
        provisioner.chart().display(),
    ))
}

/// The chart's own templates, and the templates that all charts share.
fn templates(chart: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    for folder in [chart, Path::new("deploy/charts/common")] {
        collect(&folder.join("templates"), &mut files)?;
    }
    Ok(files)
}

fn collect(path: &Path, files: &mut Files) -> anyhow::Result<()> {
    let full = project().join(path);
    if full.is_dir() {
        for entry in fs::read_dir(full)? {
            collect(&path.join(entry?.file_name()), files)?;
        }
    } else if full.is_file() {
        files.insert(path.to_owned(), read(path)?);
    }
    Ok(())
}
