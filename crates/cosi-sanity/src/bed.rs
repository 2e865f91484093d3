//! A driver under test: it retries calls like a sidecar, and records everything that they may have created.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use driver_rpc::{Code, Error, code_name};
use tokio::time::{Instant, sleep};

use crate::api::{Access, Api, Bucket, CreateRequest, GrantRequest, KEY, READ_WRITE};
use crate::{Options, Parameters, Protocol, Version};

pub(crate) struct TestBed {
    pub(crate) api: Api,
    pub(crate) options: Options,
    /// The protocols that the driver reports; empty in `v1alpha1`.
    pub(crate) supported: Vec<i32>,
    pub(crate) protocol: Protocol,
    run: String,
    inventory: Mutex<Inventory>,
}

/// Buckets and accounts that may exist.
#[derive(Default)]
struct Inventory {
    names: u32,
    /// Requests by ID.
    buckets: BTreeMap<String, CreateRequest>,
    accounts: BTreeMap<String, GrantRequest>,
    /// Requests without a clear answer, by name.
    open_buckets: BTreeMap<String, CreateRequest>,
    open_accounts: BTreeMap<String, GrantRequest>,
}

impl TestBed {
    pub(crate) fn new(api: Api, options: Options, supported: Vec<i32>) -> Self {
        let first = supported.iter().find_map(|number| Protocol::of(*number));
        let protocol = options.protocol.or(first).unwrap_or(Protocol::S3);
        let run = format!("cosi-sanity-{:08x}", fastrand::u32(..));
        Self { api, options, supported, protocol, run, inventory: Mutex::default() }
    }

    /// Returns an unused name.
    pub(crate) fn name(&self) -> String {
        let mut inventory = self.inventory();
        inventory.names += 1;
        format!("{}-{}", self.run, inventory.names)
    }

    /// Returns a request for a bucket with a new name.
    pub(crate) fn create_request(&self) -> CreateRequest {
        let protocols = match self.api.version {
            Version::V1alpha1 => Vec::new(),
            Version::V1alpha2 => vec![self.protocol as i32],
        };
        CreateRequest { name: self.name(), protocols, parameters: map(&self.options.bucket_parameters) }
    }

    /// Returns a request for an account with a new name.
    pub(crate) fn grant_request(&self, buckets: &[&str]) -> GrantRequest {
        GrantRequest {
            account: self.name(),
            protocol: self.protocol as i32,
            authentication: KEY,
            buckets: buckets.iter().map(|id| (*id).to_owned()).collect(),
            mode: READ_WRITE,
            parameters: map(&self.options.access_parameters),
        }
    }

    pub(crate) async fn create(&self, request: &CreateRequest) -> Result<Bucket, Error> {
        self.retry(|| self.create_once(&self.api, request)).await
    }

    /// Makes the call once, and records the bucket that it may have created.
    pub(crate) async fn create_once(&self, api: &Api, request: &CreateRequest) -> Result<Bucket, Error> {
        let earlier = self.inventory().open_buckets.insert(request.name.clone(), request.clone());
        let result = api.create(request).await;
        let mut inventory = self.inventory();
        if is_conclusive(&result, earlier.is_some()) {
            inventory.open_buckets.remove(&request.name);
        }
        if let Ok(bucket) = &result {
            inventory.buckets.insert(bucket.id.clone(), request.clone());
        }
        result
    }

    pub(crate) async fn delete(&self, id: &str) -> Result<(), Error> {
        self.retry(|| self.delete_once(&self.api, id)).await
    }

    pub(crate) async fn delete_once(&self, api: &Api, id: &str) -> Result<(), Error> {
        let known = self.inventory().buckets.get(id).map(|request| request.parameters.clone());
        let parameters = known.unwrap_or_else(|| map(&self.options.bucket_parameters));
        api.delete(id, &parameters).await?;
        self.inventory().buckets.remove(id);
        Ok(())
    }

    pub(crate) async fn grant(&self, request: &GrantRequest) -> Result<Access, Error> {
        self.retry(|| self.grant_once(&self.api, request)).await
    }

    /// Makes the call once, and records the account that it may have created.
    pub(crate) async fn grant_once(&self, api: &Api, request: &GrantRequest) -> Result<Access, Error> {
        let earlier = self.inventory().open_accounts.insert(request.account.clone(), request.clone());
        let result = api.grant(request).await;
        let mut inventory = self.inventory();
        if is_conclusive(&result, earlier.is_some()) {
            inventory.open_accounts.remove(&request.account);
        }
        if let Ok(access) = &result {
            inventory.accounts.insert(access.account_id.clone(), request.clone());
        }
        result
    }

    pub(crate) async fn revoke(&self, account_id: &str, granted: &GrantRequest) -> Result<(), Error> {
        self.retry(|| self.revoke_once(&self.api, account_id, granted)).await
    }

    pub(crate) async fn revoke_once(&self, api: &Api, account_id: &str, granted: &GrantRequest) -> Result<(), Error> {
        api.revoke(account_id, granted).await?;
        self.inventory().accounts.remove(account_id);
        Ok(())
    }

    /// Retries a call until it succeeds or fails permanently.
    pub(crate) async fn retry<A, F: Future<Output = Result<A, Error>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<A, Error> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            match call().await {
                Err(error) if !is_refusal(&error) && started.elapsed() < self.options.patience => {}
                result => return result,
            }
            // Jitter keeps concurrent calls for one name from colliding again.
            sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Revokes and deletes everything. Returns what may remain.
    pub(crate) async fn clean(&self) -> Vec<String> {
        let mut left = Vec::new();
        let open = self.inventory().open_accounts.clone();
        for (name, request) in open {
            // Granting again returns the account's ID.
            if let Err(error) = self.grant(&request).await.map(drop).or_else(accept_refusal) {
                left.push(format!("account {name}: {}", error_text(&error)));
            }
        }
        let accounts = self.inventory().accounts.clone();
        for (id, granted) in accounts {
            if let Err(error) = self.revoke(&id, &granted).await.or_else(accept_not_found) {
                left.push(format!("account {} with id {id}: {}", granted.account, error_text(&error)));
            }
        }
        let open = self.inventory().open_buckets.clone();
        for (name, request) in open {
            if let Err(error) = self.create(&request).await.map(drop).or_else(accept_refusal) {
                left.push(format!("bucket {name}: {}", error_text(&error)));
            }
        }
        let buckets = self.inventory().buckets.clone();
        for (id, request) in buckets {
            if let Err(error) = self.delete(&id).await.or_else(accept_not_found) {
                left.push(format!("bucket {} with id {id}: {}", request.name, error_text(&error)));
            }
        }
        let names = self.inventory().names;
        *self.inventory() = Inventory { names, ..Inventory::default() };
        left
    }

    fn inventory(&self) -> MutexGuard<'_, Inventory> {
        self.inventory.lock().unwrap()
    }
}

/// Returns whether the driver has rejected the call without effect. A sidecar does not retry, except after `NotFound`.
pub(crate) fn is_refusal(error: &Error) -> bool {
    let codes = [Code::InvalidArgument, Code::AlreadyExists, Code::Unimplemented, Code::OutOfRange, Code::NotFound];
    matches!(error, Error::Status(status) if codes.contains(&status.code()))
}

/// Returns the driver's error, or the failure of the call.
pub(crate) fn error_text(error: &Error) -> String {
    match error {
        Error::Status(status) => format!("{} ({})", code_name(status.code()), status.message()),
        other => other.to_string(),
    }
}

pub(crate) fn map(pairs: &[(String, String)]) -> Parameters {
    pairs.iter().cloned().collect()
}

/// Returns whether the result of the calls for a name is known. A bucket or account that already exists may have been
/// created by an earlier call.
fn is_conclusive<A>(result: &Result<A, Error>, has_earlier: bool) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if error.code() == Code::AlreadyExists => !has_earlier,
        Err(error) => is_refusal(error),
    }
}

/// Accepts a refused call, since it had no effect. `AlreadyExists` remains an error.
fn accept_refusal(error: Error) -> Result<(), Error> {
    if is_refusal(&error) && error.code() != Code::AlreadyExists { Ok(()) } else { Err(error) }
}

/// Accepts `NotFound`, regardless of the code that the specification requires.
fn accept_not_found(error: Error) -> Result<(), Error> {
    if error.code() == Code::NotFound { Ok(()) } else { Err(error) }
}
