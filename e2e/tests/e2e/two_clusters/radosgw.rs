//! The scenario on a Ceph object gateway.

use anyhow::Context;
use s3_client::{Client, Credentials};
use serde_json::json;
use tempfile::TempDir;
use testbed::ceph::State;
use testbed::cluster::{BucketSpace, Program};

use super::buckets::{Pair, Store, count_objects};
use super::inventory::Inventory;

pub(crate) struct Radosgw {
    ceph: State,
    /// The folder of the admin keys, which the provisioner reads.
    files: TempDir,
}

pub(crate) async fn pair() -> anyhow::Result<Pair<Radosgw>> {
    let (ceph, files) = (State::for_tests()?, tempfile::tempdir()?);
    std::fs::write(files.path().join("access"), &ceph.access_key)?;
    std::fs::write(files.path().join("secret"), &ceph.secret_key)?;
    Pair::new("two-rgw", Radosgw { ceph, files }, &[("class", &[])]).await
}

impl Radosgw {
    /// An S3 client with a key.
    fn client(&self, access_key: &str, secret_key: &str) -> anyhow::Result<Client> {
        testbed::s3::client(&self.ceph.endpoint, None, Credentials::new(access_key, secret_key))
    }
}

impl Store for Radosgw {
    const NAME: &str = "radosgw";
    const USER: &str = "cephUser";

    fn spawn(&self, buckets: &BucketSpace) -> anyhow::Result<Program> {
        let file = |name: &str| self.files.path().join(name).display().to_string();
        let (access, secret) = (file("access"), file("secret"));
        let arguments = [
            ["--endpoint", &self.ceph.endpoint],
            ["--admin-access-key-file", &access],
            ["--admin-secret-key-file", &secret],
        ];
        buckets.spawn("ceph-rgw-provisioner", &[], &arguments.concat())
    }

    fn class(&self, _: usize) -> &'static str {
        "class"
    }

    async fn inventory(&self, namespace: &str) -> anyhow::Result<Inventory> {
        let mut inventory = Inventory::default();
        let mine = format!("obc-{namespace}-");
        let users: Vec<String> = serde_json::from_value(self.ceph.radosgw_admin(&["user", "list"]).await?)?;
        let mut keys = std::collections::BTreeMap::new();
        for user in users.into_iter().filter(|user| user.starts_with(&mine)) {
            let answer = self.ceph.radosgw_admin(&["user", "info", "--uid", &user]).await?;
            let key = &answer["keys"][0];
            let ids: Vec<_> = answer["keys"].as_array().into_iter().flatten().map(|key| &key["access_key"]).collect();
            let says = json!({"name": answer["display_name"], "keys": ids, "suspended": answer["suspended"]});
            inventory.0.insert(format!("user/{user}"), says.to_string());
            let text = |field: &str| key[field].as_str().unwrap_or_default().to_owned();
            keys.insert(user, (text("access_key"), text("secret_key")));
        }
        let all = self.ceph.radosgw_admin(&["bucket", "stats"]).await?;
        for bucket in all.as_array().into_iter().flatten() {
            let (name, owner) =
                (bucket["bucket"].as_str().context("no name")?, bucket["owner"].as_str().context("no owner")?);
            let Some((access_key, secret_key)) = keys.get(owner) else {
                if name.contains(namespace) {
                    inventory.0.insert(format!("bucket/{name}"), format!("of {owner}, who is no user of a claim"));
                }
                continue;
            };
            let says = json!({"owner": owner, "id": bucket["id"], "marker": bucket["marker"]});
            inventory.0.insert(format!("bucket/{name}"), says.to_string());
            count_objects(&self.client(access_key, secret_key)?, name, &mut inventory).await?;
        }
        Ok(inventory)
    }
}
