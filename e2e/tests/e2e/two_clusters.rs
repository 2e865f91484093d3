//! Two clusters share a gateway, an AWS account or a directory. Their namespaces, claims, classes and provisioners have
//! the same names. Provisioners are killed at random moments, and one cluster is lost and restored from a backup of the
//! other one. Neither may change assets of the other, which the tests check on the backend.

mod aws;
mod backend;
mod backup;
mod buckets;
mod directories;
mod fleet;
mod inventory;
mod persons;
mod play;
mod radosgw;
mod second;

use directories::{Directories, Kind};

#[tokio::test]
async fn ceph_two_clusters_share_a_gateway() -> anyhow::Result<()> {
    play::play(radosgw::pair().await?).await
}

#[tokio::test]
async fn aws_two_clusters_share_an_account_in_two_regions() -> anyhow::Result<()> {
    play::play(aws::pair().await?).await
}

#[tokio::test]
async fn hostpath_two_clusters_share_a_root() -> anyhow::Result<()> {
    play::play(Directories::new(Kind::HostPath).await?).await
}

#[tokio::test]
async fn nfs_two_clusters_use_one_share() -> anyhow::Result<()> {
    play::play(Directories::new(Kind::Share).await?).await
}
