//! Two clusters share a gateway, an AWS account or a directory. Their namespaces, claims, classes and provisioners have
//! the same names. Provisioners are killed at random moments, and one cluster is lost and restored from a backup of the
//! other one. Neither may change assets of the other, which the tests check on the backend.

mod administrator;
mod aws;
mod backend;
mod backup;
mod buckets;
mod directories;
mod fleet;
mod inventory;
mod radosgw;
mod scenario;
mod second;

use directories::{Directories, Kind};

#[tokio::test]
async fn ceph_two_clusters_share_a_gateway() -> anyhow::Result<()> {
    scenario::run_scenario(radosgw::pair().await?).await
}

#[tokio::test]
async fn aws_two_clusters_share_an_account_in_two_regions() -> anyhow::Result<()> {
    scenario::run_scenario(aws::pair().await?).await
}

#[tokio::test]
async fn hostpath_two_clusters_share_a_root() -> anyhow::Result<()> {
    scenario::run_scenario(Directories::new(Kind::HostPath).await?).await
}

#[tokio::test]
async fn nfs_two_clusters_use_one_share() -> anyhow::Result<()> {
    scenario::run_scenario(Directories::new(Kind::Share).await?).await
}
