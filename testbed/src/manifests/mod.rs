//! Generates `deploy/` from the output of the programs and from the charts' templates.
//!
//! A chart's `files/rights.yaml` is the output of the program's `rbac`, and its values come from `schema.yaml`. The
//! folders for `kubectl apply -k` are rendered from the chart. `cargo xtask manifests` writes all of it. A test
//! compares everything except the rendered files, for which it compares a fingerprint of their sources.

mod program;
mod rendered;
mod values;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

pub use program::rules;
pub use rendered::{is_up_to_date, render};

/// A provisioner with manifests. To add one, add an entry here, and a chart with its pod, classes and values.
pub struct Provisioner {
    /// The name of the chart and the image.
    pub name: &'static str,
    /// The name of the package and its program.
    pub package: &'static str,
    /// The program's mode, if it has several.
    pub mode: &'static [&'static str],
    /// The folder in `deploy/` that contains the variants.
    pub folder: &'static str,
    /// The files in `deploy/charts` with the values. Later files override earlier ones, and the chart's own file
    /// overrides all of them.
    values: &'static [&'static str],
    /// The permission sets that the chart selects from, with the options of `rbac` that print them.
    rights: &'static [(&'static str, &'static [&'static str])],
    /// Examples of the values without which the chart is refused, in the format of `helm --set-json`.
    pub required: &'static [&'static str],
    /// The variants that are rendered for `kubectl apply -k`.
    pub variants: &'static [Variant],
}

/// A rendering of a chart.
pub struct Variant {
    /// The variant's folder.
    pub folder: &'static str,
    about: &'static str,
    /// The values, in the format of `helm --set-json`.
    pub values: &'static [&'static str],
    /// The only template to render; `None` renders all of them.
    only: Option<&'static str>,
}

const LEASE: (&str, &[&str]) = ("lease", &["--coordination", "lease"]);
/// The chart replaces the names of the two shards with names for its own number of shards.
const LEASE_SHARDED: (&str, &[&str]) = ("lease-sharded", &["--coordination", "lease", "--shards", "2"]);

/// The objects that OpenShift requires before it admits pods that need more than `restricted-v2`.
const fn openshift(folder: &'static str, about: &'static str) -> Variant {
    Variant { folder, about, values: &["openshift.enabled=true"], only: Some("securitycontextconstraints.yaml") }
}

const ALL: &str = "common/schema.yaml";
const VOLUMES: &str = "common/schema-volumes.yaml";
const REPLICAS: &str = "common/schema-replicas.yaml";
const BUCKETS: &str = "common/schema-buckets.yaml";

const OF_BUCKETS: &[Variant] = &[
    Variant {
        folder: "default",
        about: "Two replicas, of which one is active. Apply the CRDs first: kubectl apply -k crates/objectbucket-api/crds/strict",
        values: &[],
        only: None,
    },
    Variant {
        folder: "cosi",
        about: "Instead of default: for Buckets and BucketAccesses of COSI v1alpha2. Install their CRDs and controller first.",
        values: &[r#"cosi.mode="controller""#],
        only: None,
    },
];
const RIGHTS_OF_BUCKETS: &[(&str, &[&str])] =
    &[LEASE, LEASE_SHARDED, ("cosi-controller", &["--cosi-controller"]), ("cosi-sidecar", &["--cosi"])];

/// All provisioners.
pub const PROVISIONERS: [Provisioner; 7] = [
    Provisioner {
        name: "hostpath-provisioner",
        package: "hostpath-provisioner",
        mode: &[],
        folder: "hostpath",
        values: &[ALL, VOLUMES],
        rights: &[("per-node", &["--coordination", "per-node"]), LEASE],
        required: &[],
        variants: &[
            Variant {
                folder: "per-node",
                about: "One provisioner on each node; a volume is created on the node of its first pod.",
                values: &[],
                only: None,
            },
            Variant {
                folder: "single",
                about: "One provisioner for a single-node cluster.",
                values: &[r#"coordination="lease""#, "tolerations=[]"],
                only: None,
            },
            Variant {
                folder: "gone-nodes",
                about: "Deletes the volumes of nodes that no longer exist, after an hour. In addition to per-node.",
                values: &["nodeCleanup.enabled=true"],
                only: Some("gone-nodes.yaml"),
            },
            openshift("openshift", "What OpenShift permits the provisioner to do. In addition to per-node or single."),
        ],
    },
    Provisioner {
        name: "nfs-subdir-provisioner",
        package: "nfs-provisioner",
        mode: &["subdir"],
        folder: "nfs",
        values: &[ALL, VOLUMES, REPLICAS],
        rights: &[LEASE, LEASE_SHARDED],
        required: &[r#"nfs.server="nfs.example.com""#],
        variants: &[
            Variant {
                folder: "subdir",
                about: "Directories on a share. Set the share in NFS_SHARES and in the pods' volume.",
                values: &[],
                only: None,
            },
            openshift("subdir-openshift", "What OpenShift permits the provisioner to do. In addition to subdir."),
        ],
    },
    Provisioner {
        name: "nfs-server-provisioner",
        package: "nfs-provisioner",
        mode: &["server"],
        folder: "nfs",
        values: &[ALL, VOLUMES],
        rights: &[LEASE],
        required: &[],
        variants: &[
            Variant {
                folder: "server",
                about: "An NFS server on a disk of the cluster's default class. Deleting the namespace deletes the disk and all volumes.",
                values: &[],
                only: None,
            },
            openshift("server-openshift", "What OpenShift permits the provisioner to do. In addition to server."),
        ],
    },
    Provisioner {
        name: "ceph-rgw-provisioner",
        package: "ceph-rgw-provisioner",
        mode: &[],
        folder: "ceph-rgw",
        values: &[ALL, REPLICAS, BUCKETS],
        rights: RIGHTS_OF_BUCKETS,
        required: &[],
        variants: OF_BUCKETS,
    },
    Provisioner {
        name: "aws-s3-provisioner",
        package: "aws-s3-provisioner",
        mode: &[],
        folder: "aws-s3",
        values: &[ALL, REPLICAS, BUCKETS],
        rights: RIGHTS_OF_BUCKETS,
        required: &[],
        variants: OF_BUCKETS,
    },
    Provisioner {
        name: "gcs-provisioner",
        package: "gcs-provisioner",
        mode: &[],
        folder: "gcs",
        values: &[ALL, REPLICAS, BUCKETS],
        rights: RIGHTS_OF_BUCKETS,
        required: &[],
        variants: OF_BUCKETS,
    },
    Provisioner {
        name: "garage-provisioner",
        package: "garage-provisioner",
        mode: &[],
        folder: "garage",
        values: &[ALL, REPLICAS, BUCKETS],
        rights: RIGHTS_OF_BUCKETS,
        required: &[],
        variants: OF_BUCKETS,
    },
];

/// Files by their path in the project.
pub type Files = BTreeMap<PathBuf, String>;

/// Returns the path of a package's program.
pub type Programs<'a> = &'a dyn Fn(&str) -> anyhow::Result<PathBuf>;

impl Provisioner {
    /// The folder of the chart, relative to the project.
    pub fn chart(&self) -> PathBuf {
        Path::new("deploy/charts").join(self.name)
    }

    /// The options of helm without which it refuses the chart.
    pub fn required_options(&self) -> Vec<&'static str> {
        self.required.iter().flat_map(|value| ["--set-json", *value]).collect()
    }

    /// True if several pods can share the work.
    pub fn has_shards(&self) -> bool {
        self.values.contains(&REPLICAS)
    }

    /// True if the pods can provide a COSI driver.
    pub fn has_cosi(&self) -> bool {
        self.values.contains(&BUCKETS)
    }

    /// The files of its chart that are generated from the program and from `schema.yaml`.
    pub fn chart_files(&self, programs: Programs<'_>) -> anyhow::Result<Files> {
        let program = programs(self.package)?;
        let chart = self.chart();
        let values = values::read(self.values, &chart)?;
        let schema = values::schema(self.name, &values);
        let readme = read(&chart.join("README.md")).unwrap_or_default();
        Ok(Files::from([
            (chart.join("files/rights.yaml"), program::rights(&program, self.mode, self.rights)?),
            (chart.join("files/renamed.yaml"), values::renamed(&values)?),
            (chart.join("values.yaml"), values::defaults(&values)),
            (chart.join("values.schema.json"), serde_json::to_string_pretty(&schema)? + "\n"),
            (
                chart.join("README.md"),
                values::with_table(&readme, &values).with_context(|| format!("{}", chart.display()))?,
            ),
        ]))
    }
}

/// Fails with the names of files that do not exist or have another content.
pub fn compare(files: &Files) -> anyhow::Result<()> {
    let differs = |(path, text): &(&PathBuf, &String)| read(path).ok().as_ref() != Some(*text);
    let stale: Vec<_> = files.iter().filter(differs).map(|(path, _)| path.display().to_string()).collect();
    ensure!(stale.is_empty(), "not up to date, run `cargo xtask manifests`: {}", stale.join(" "));
    Ok(())
}

/// Writes the files.
pub fn write(files: &Files) -> anyhow::Result<()> {
    for (path, text) in files {
        let path = project().join(path);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The project's folder.
pub fn project() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let path = project().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The objects in a file.
pub fn parse(text: &str) -> anyhow::Result<Vec<serde_json::Value>> {
    Ok(serde_saphyr::from_multiple(text)?)
}
