//! The driver's buckets and accounts, and the rules for them, common to both versions of the protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;
use driver_rpc::Status;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::{Fault, Protocol, Settings};

pub(crate) type Parameters = BTreeMap<String, String>;

/// A bucket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bucket {
    pub(crate) name: String,
    pub(crate) protocols: BTreeSet<Protocol>,
    pub(crate) parameters: Parameters,
}

/// The access that is granted to an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) service_account: String,
    pub(crate) parameters: Parameters,
    /// The IDs of the buckets, with the access mode.
    pub(crate) buckets: BTreeMap<String, i32>,
}

/// An account with a key.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) grant: Grant,
    pub(crate) key: String,
    pub(crate) secret: String,
}

/// Buckets and accounts by ID.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Store {
    pub(crate) buckets: BTreeMap<String, Bucket>,
    pub(crate) accounts: BTreeMap<String, Account>,
}

pub(crate) struct Model {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    rng: Rng,
    ids: u32,
}

impl Model {
    pub(crate) fn new(settings: Settings) -> anyhow::Result<Self> {
        let store = match &settings.state {
            Some(path) if path.exists() && !settings.faults.contains(&Fault::Forgets) => read(path)?,
            _ => Store::default(),
        };
        Ok(Self { rng: Rng::with_seed(settings.seed), settings, store, ids: 0 })
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.settings.faults.contains(&fault)
    }

    pub(crate) fn name(&self) -> String {
        if self.has(Fault::InvalidName) { "-cosi_sim".to_owned() } else { self.settings.name.clone() }
    }

    /// Fails if a field is missing, unless the driver accepts missing fields.
    pub(crate) fn require(&self, is_there: bool, field: &str) -> Result<(), Status> {
        if !is_there && !self.has(Fault::AcceptsMissingFields) {
            return Err(Status::invalid_argument(format!("{field} is required")));
        }
        Ok(())
    }

    pub(crate) fn supports(&self, protocol: Protocol) -> bool {
        self.settings.protocols.contains(&protocol)
    }

    pub(crate) fn bucket_of(&self, name: &str) -> Option<&String> {
        self.store.buckets.iter().find(|(_, bucket)| bucket.name == name).map(|(id, _)| id)
    }

    pub(crate) fn account_of(&self, name: &str) -> Option<&String> {
        self.store.accounts.iter().find(|(_, account)| account.grant.name == name).map(|(id, _)| id)
    }

    /// Creates a bucket. With `was_missing`, a bucket that a concurrent call has created is ignored.
    pub(crate) fn create(&mut self, bucket: Bucket, was_missing: bool) -> Result<String, Status> {
        let is_shared = self.has(Fault::SharedBucket);
        let found = if is_shared { self.store.buckets.keys().next() } else { self.bucket_of(&bucket.name) };
        if let Some(id) = found.filter(|_| !was_missing && !self.has(Fault::CreateTwice)) {
            let known = &self.store.buckets[id];
            let is_same = self.has(Fault::CreateIgnoresParameters) || known.name != bucket.name || *known == bucket;
            return is_same
                .then(|| id.clone())
                .ok_or_else(|| Status::already_exists("a bucket of this name has other parameters or protocols"));
        }
        let id = self.id(&bucket.name);
        self.store.buckets.insert(id.clone(), bucket);
        self.save()?;
        Ok(id)
    }

    pub(crate) fn get(&self, id: &str) -> Result<&Bucket, Status> {
        self.store.buckets.get(id).ok_or_else(|| Status::not_found(format!("there is no bucket {id}")))
    }

    pub(crate) fn delete(&mut self, id: &str) -> Result<(), Status> {
        if self.has(Fault::DeletesAll) {
            self.store.buckets.clear();
        }
        if self.store.buckets.remove(id).is_none() && self.has(Fault::DeleteMissingFails) {
            return Err(Status::not_found(format!("there is no bucket {id}")));
        }
        self.save()
    }

    /// Grants access. With `was_missing`, an account that a concurrent call has created is ignored.
    pub(crate) fn grant(&mut self, grant: Grant, was_missing: bool) -> Result<(String, Account), Status> {
        for id in grant.buckets.keys().filter(|id| !id.is_empty()) {
            self.get(id)?;
        }
        if grant.buckets.len() > 1 && !self.settings.multi_bucket {
            return Err(Status::out_of_range("an account has one bucket"));
        }
        if grant.buckets.len() > 1 && self.has(Fault::RefusesSeveral) {
            return Err(Status::invalid_argument("an account has one bucket"));
        }
        let is_shared = self.has(Fault::SharedAccount);
        let found = if is_shared { self.store.accounts.keys().next() } else { self.account_of(&grant.name) };
        if let Some(id) = found.filter(|_| !was_missing && !self.has(Fault::GrantTwice)) {
            let account = &self.store.accounts[id];
            let is_same =
                self.has(Fault::GrantIgnoresParameters) || account.grant.name != grant.name || account.grant == grant;
            return is_same
                .then(|| (id.clone(), self.with_credential_faults(account.clone())))
                .ok_or_else(|| Status::already_exists("an account of this name has other access"));
        }
        let id = self.id(&grant.name);
        let mut random = |length| std::iter::repeat_with(|| self.rng.alphanumeric()).take(length).collect::<String>();
        let account = Account { grant, key: random(20), secret: random(40) };
        self.store.accounts.insert(id.clone(), account.clone());
        self.save()?;
        Ok((id, self.with_credential_faults(account)))
    }

    /// Returns an account as the answer to a grant shows it.
    fn with_credential_faults(&self, mut account: Account) -> Account {
        if self.has(Fault::OtherCredentials) {
            let protocol = &mut account.grant.protocol;
            *protocol = if *protocol == Protocol::S3 { Protocol::Azure } else { Protocol::S3 };
        }
        if self.has(Fault::EmptyCredentials) {
            account.secret.clear();
        }
        account
    }

    pub(crate) fn revoke<'a>(&mut self, id: &str, buckets: impl Iterator<Item = &'a String>) -> Result<(), Status> {
        let Some(account) = self.store.accounts.get_mut(id) else {
            let fails = self.has(Fault::RevokeMissingFails);
            return if fails { Err(Status::not_found(format!("there is no account {id}"))) } else { Ok(()) };
        };
        buckets.for_each(|bucket| {
            account.grant.buckets.remove(bucket);
        });
        if account.grant.buckets.is_empty() || self.has(Fault::SharedAccount) {
            self.store.accounts.remove(id);
        }
        self.save()
    }

    fn id(&mut self, name: &str) -> String {
        let length = if self.has(Fault::LongIds) { 3000 } else { 8 };
        let random: String = std::iter::repeat_with(|| self.rng.alphanumeric()).take(length).collect();
        // IDs for one name sort by age.
        self.ids += 1;
        format!("{name}-{:04}{random}", self.ids)
    }

    fn save(&self) -> Result<(), Status> {
        let Some(path) = &self.settings.state else { return Ok(()) };
        write(path, &self.store).map_err(|error| Status::internal(format!("{error:#}")))
    }
}

fn read(path: &Path) -> anyhow::Result<Store> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a state file of this driver", path.display()))
}

fn write(path: &Path, store: &Store) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(store)?).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
}
