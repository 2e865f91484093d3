//! The play on a Ceph object gateway.

use std::collections::BTreeSet;

use anyhow::Context;
use kube::core::ApiResource;
use s3_client::{Client, Credentials};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::ceph::State;
use testbed::cluster::{Program, TestSpace};

use super::backend::Backend;
use super::buckets::{self, Pair};
use super::inventory::Inventory;
use super::persons;

pub(crate) struct Radosgw {
    pair: Pair,
    ceph: State,
    /// The folder of the admin keys, which the provisioner reads.
    files: TempDir,
}

impl Radosgw {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let (pair, ceph, files) = (Pair::new("two-rgw").await?, State::for_tests()?, tempfile::tempdir()?);
        std::fs::write(files.path().join("access"), &ceph.access_key)?;
        std::fs::write(files.path().join("secret"), &ceph.secret_key)?;
        pair.class("class", &[]).await?;
        Ok(Self { pair, ceph, files })
    }

    /// An S3 client with a key.
    fn client(&self, access_key: &str, secret_key: &str) -> anyhow::Result<Client> {
        testbed::s3::client(&self.ceph.endpoint, None, Credentials::new(access_key, secret_key))
    }
}

impl Backend for Radosgw {
    fn name(&self) -> &'static str {
        "radosgw"
    }

    fn claims() -> ApiResource {
        buckets::claims()
    }

    fn records() -> ApiResource {
        buckets::records()
    }

    fn space(&self, side: usize) -> &TestSpace {
        &self.pair.sides[side].space
    }

    fn spawn(&self, side: usize) -> anyhow::Result<Program> {
        let file = |name: &str| self.files.path().join(name).display().to_string();
        let (access, secret) = (file("access"), file("secret"));
        let arguments = [
            ["--endpoint", &self.ceph.endpoint],
            ["--admin-access-key-file", &access],
            ["--admin-secret-key-file", &secret],
        ];
        self.pair.sides[side].spawn("ceph-rgw-provisioner", &[], &arguments.concat())
    }

    fn claim(&self, name: &str, _number: usize, wanted: bool) -> Value {
        self.pair.claim(name, "class", wanted)
    }

    fn is_bound(claim: &Value) -> bool {
        buckets::is_bound(claim)
    }

    fn assets(&self, record: &Value) -> BTreeSet<String> {
        buckets::assets(record, "cephUser")
    }

    async fn inventory(&self) -> anyhow::Result<Inventory> {
        let mut inventory = Inventory::default();
        let mine = format!("obc-{}-", self.pair.namespace());
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
                (bucket["bucket"].as_str().context("a name")?, bucket["owner"].as_str().context("an owner")?);
            let Some((access_key, secret_key)) = keys.get(owner) else {
                if name.contains(self.pair.namespace()) {
                    inventory.0.insert(format!("bucket/{name}"), format!("of {owner}, who is no user of a claim"));
                }
                continue;
            };
            let says = json!({"owner": owner, "id": bucket["id"], "marker": bucket["marker"]});
            inventory.0.insert(format!("bucket/{name}"), says.to_string());
            buckets::count_objects(&self.client(access_key, secret_key)?, name, &mut inventory).await?;
        }
        Ok(inventory)
    }

    async fn write(&self, side: usize, claim: &str, file: &str, text: String) -> anyhow::Result<()> {
        self.pair.write(side, claim, file, text).await
    }

    async fn clean(&self, _side: usize) -> anyhow::Result<()> {
        Ok(())
    }

    async fn take_over(&self, side: usize) -> anyhow::Result<String> {
        persons::give_back(&self.pair.sides[side].space).await
    }

    async fn mistake(&self, side: usize) -> anyhow::Result<()> {
        persons::take_what_is_anothers(&self.pair.sides[side].space).await
    }

    async fn done(self) -> anyhow::Result<()> {
        self.pair.done().await
    }
}
