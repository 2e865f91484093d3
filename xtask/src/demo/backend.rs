//! The object stores of the bucket demo.

use anyhow::ensure;
use serde_json::{Value, json};
use testbed::ceph::{self, Ceph};
use testbed::dependency::Dependency;
use testbed::guard::Guard;
use testbed::progress::SharedProgress;
use testbed::s3::{self, S3};

/// An object store.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    /// A real radosgw
    Ceph,
    /// S3 and IAM like AWS, by moto
    Aws,
    /// Google Cloud Storage, simulated in this process
    Gcs,
}

/// A running object store.
pub(super) enum Backend {
    Ceph(Ceph),
    Aws(S3),
    Gcs(gcs_sim::Server),
}

impl Store {
    /// The dependency of the store on this platform, and the command that runs the demo with it.
    pub(super) fn dependency(self) -> Option<(&'static Dependency, &'static str)> {
        match self {
            Self::Ceph => Some((&ceph::CEPH, "demo buckets")),
            Self::Aws => Some((&s3::S3_SERVER, "demo buckets --backend aws")),
            Self::Gcs => None,
        }
    }

    /// The provisioner's package and program.
    pub(super) fn provisioner(self) -> &'static str {
        match self {
            Self::Ceph => "ceph-rgw-provisioner",
            Self::Aws => "aws-s3-provisioner",
            Self::Gcs => "gcs-provisioner",
        }
    }

    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Ceph => "Ceph: a monitor, a manager, an OSD and radosgw",
            Self::Aws => "moto, an S3 and IAM server that checks every signature and permission",
            Self::Gcs => "a simulated Google Cloud Storage, which checks tokens, etags, signatures and policies",
        }
    }

    pub(super) async fn start(self, guard: &Guard, progress: &SharedProgress) -> anyhow::Result<Backend> {
        Ok(match self {
            Self::Ceph => Backend::Ceph(Ceph::start(guard, progress).await?),
            Self::Aws => Backend::Aws(S3::start(guard).await?),
            Self::Gcs => Backend::Gcs(gcs_sim::Server::start().await?),
        })
    }
}

impl Backend {
    /// The content of the administrator's Secret.
    pub(super) fn admin(&self) -> Value {
        match self {
            Self::Ceph(ceph) => {
                let state = ceph.state();
                json!({"accessKey": state.access_key, "secretKey": state.secret_key})
            }
            Self::Aws(aws) => {
                let server = aws.server();
                json!({"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key})
            }
            Self::Gcs(google) => json!({"key.json": google.admin_key()}),
        }
    }

    /// The provisioner's options with the endpoints of the store.
    pub(super) fn arguments(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Ceph(_) | Self::Aws(_) => Vec::new(),
            // StorageClasses do not contain the endpoints of Google.
            Self::Gcs(google) => ["--endpoint", "--iam-endpoint"].map(|name| (name, google.endpoint.clone())).into(),
        }
    }

    /// The StorageClass parameters with the endpoint of the store.
    pub(super) fn parameters(&self) -> Value {
        match self {
            Self::Ceph(ceph) => json!({"endpoint": ceph.state().endpoint}),
            Self::Aws(aws) => {
                let endpoint = &aws.server().endpoint;
                json!({"endpoint": endpoint, "iamEndpoint": endpoint, "region": "eu-central-1"})
            }
            Self::Gcs(_) => json!({"location": "europe-west3"}),
        }
    }

    /// Fails if buckets or users remain. The returned lines show the requests and their results.
    pub(super) async fn nothing_left(&self) -> anyhow::Result<[String; 2]> {
        let (lines, is_empty) = match self {
            Self::Ceph(ceph) => {
                let gateway = ceph.state();
                let buckets = gateway.radosgw_admin(&["bucket", "list"]).await?;
                let users = gateway.radosgw_admin(&["user", "list"]).await?;
                let is_empty = buckets == json!([]) && users == json!([ceph::ADMIN]);
                (
                    [format!("radosgw-admin bucket list: {buckets}"), format!("radosgw-admin user list:   {users}")],
                    is_empty,
                )
            }
            Self::Aws(aws) => {
                let buckets = aws.server().admin()?.list_buckets().await?;
                let users = aws.server().iam()?.users("/kube-provisioner/").await?;
                let is_empty = buckets.is_empty() && users.is_empty();
                ([format!("ListBuckets: {buckets:?}"), format!("ListUsers:   {users:?}")], is_empty)
            }
            Self::Gcs(google) => {
                let model = google.model();
                let (buckets, accounts): (Vec<_>, Vec<_>) =
                    (model.buckets.keys().collect(), model.accounts.keys().collect());
                let is_empty = buckets.is_empty() && accounts.is_empty() && model.keys.is_empty();
                ([format!("buckets:          {buckets:?}"), format!("service accounts: {accounts:?}")], is_empty)
            }
        };
        ensure!(is_empty, "leftovers: {}", lines.join(", "));
        Ok(lines)
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Ceph(ceph) => ceph.stop(),
            Self::Aws(_) | Self::Gcs(_) => Ok(()),
        }
    }
}
