//! Tests that the files in `crds/` and in the charts match [`crds`]. With `UPDATE_CRDS=1`, the tests write the files.

use std::path::Path;

use kube::ResourceExt;
use objectbucket_api::{Validation, crds};

#[test]
fn standard_files_are_current() {
    check(Validation::Standard, "crds/standard");
}

#[test]
fn strict_files_are_current() {
    check(Validation::Strict, "crds/strict");
}

/// Otherwise, a claim whose class or bucket name changed would be deprovisioned under other rules than those under
/// which it was provisioned.
#[test]
fn charts_contain_the_strict_files() {
    for store in ["aws-s3", "ceph-rgw", "garage", "gcs"] {
        check(Validation::Strict, &format!("../../deploy/charts/{store}-provisioner/crds"));
    }
}

fn check(validation: Validation, folder: &str) {
    for crd in crds(validation) {
        let file = format!("{}.yaml", crd.name_any());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(file);
        let yaml = serde_saphyr::to_string(&crd).unwrap();
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(&path, yaml).unwrap();
        } else {
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert_eq!(found, yaml, "{} is outdated; run the test with UPDATE_CRDS=1", path.display());
        }
    }
}
