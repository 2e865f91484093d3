//! A driver under test: it retries calls like a sidecar, and records everything that they may have created.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use driver_rpc::{Code, Error, code_name};
use tokio::time::{Instant, sleep};

use crate::api::{Access, Api, Bucket, CreateRequest, GrantRequest, KEY, READ_WRITE};
use crate::{Options, Parameters, Protocol, Version};

pub(crate) struct Bed {
    pub(crate) api: Api,
    pub(crate) options: Options,
    /// The protocols that the driver reports; empty in `v1alpha1`.
    pub(crate) supported: Vec<i32>,
    pub(crate) protocol: Protocol,
    run: String,
    made: Mutex<Inventory>,
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

impl Bed {
    pub(crate) fn new(api: Api, options: Options, supported: Vec<i32>) -> Self {
        let first = supported.iter().find_map(|number| Protocol::of(*number));
        let protocol = options.protocol.or(first).unwrap_or(Protocol::S3);
        let run = format!("cosi-sanity-{:08x}", fastrand::u32(..));
        Self { api, options, supported, protocol, run, made: Mutex::default() }
    }

    /// Returns an unused name.
    pub(crate) fn name(&self) -> String {
        let mut made = self.made();
        made.names += 1;
        format!("{}-{}", self.run, made.names)
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
        self.settle(|| self.create_once(&self.api, request)).await
    }

    /// Makes the call once, and records the bucket that it may have created.
    pub(crate) async fn create_once(&self, api: &Api, request: &CreateRequest) -> Result<Bucket, Error> {
        let earlier = self.made().open_buckets.insert(request.name.clone(), request.clone());
        let result = api.create(request).await;
        let mut made = self.made();
        if is_clear(&result, earlier.is_some()) {
            made.open_buckets.remove(&request.name);
        }
        if let Ok(bucket) = &result {
            made.buckets.insert(bucket.id.clone(), request.clone());
        }
        result
    }

    pub(crate) async fn delete(&self, id: &str) -> Result<(), Error> {
        self.settle(|| self.delete_once(&self.api, id)).await
    }

    pub(crate) async fn delete_once(&self, api: &Api, id: &str) -> Result<(), Error> {
        let known = self.made().buckets.get(id).map(|request| request.parameters.clone());
        let parameters = known.unwrap_or_else(|| map(&self.options.bucket_parameters));
        api.delete(id, &parameters).await?;
        self.made().buckets.remove(id);
        Ok(())
    }

    pub(crate) async fn grant(&self, request: &GrantRequest) -> Result<Access, Error> {
        self.settle(|| self.grant_once(&self.api, request)).await
    }

    /// Makes the call once, and records the account that it may have created.
    pub(crate) async fn grant_once(&self, api: &Api, request: &GrantRequest) -> Result<Access, Error> {
        let earlier = self.made().open_accounts.insert(request.account.clone(), request.clone());
        let result = api.grant(request).await;
        let mut made = self.made();
        if is_clear(&result, earlier.is_some()) {
            made.open_accounts.remove(&request.account);
        }
        if let Ok(access) = &result {
            made.accounts.insert(access.account_id.clone(), request.clone());
        }
        result
    }

    pub(crate) async fn revoke(&self, account_id: &str, granted: &GrantRequest) -> Result<(), Error> {
        self.settle(|| self.revoke_once(&self.api, account_id, granted)).await
    }

    pub(crate) async fn revoke_once(&self, api: &Api, account_id: &str, granted: &GrantRequest) -> Result<(), Error> {
        api.revoke(account_id, granted).await?;
        self.made().accounts.remove(account_id);
        Ok(())
    }

    /// Retries a call until it succeeds or fails permanently.
    pub(crate) async fn settle<A, F: Future<Output = Result<A, Error>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<A, Error> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            match call().await {
                Err(error) if !refuses(&error) && started.elapsed() < self.options.patience => {}
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
        let open = self.made().open_accounts.clone();
        for (name, request) in open {
            // Granting again returns the account's ID.
            if let Err(error) = self.grant(&request).await.map(drop).or_else(fine) {
                left.push(format!("account {name}: {}", text(&error)));
            }
        }
        let accounts = self.made().accounts.clone();
        for (id, granted) in accounts {
            if let Err(error) = self.revoke(&id, &granted).await.or_else(gone) {
                left.push(format!("account {} with id {id}: {}", granted.account, text(&error)));
            }
        }
        let open = self.made().open_buckets.clone();
        for (name, request) in open {
            if let Err(error) = self.create(&request).await.map(drop).or_else(fine) {
                left.push(format!("bucket {name}: {}", text(&error)));
            }
        }
        let buckets = self.made().buckets.clone();
        for (id, request) in buckets {
            if let Err(error) = self.delete(&id).await.or_else(gone) {
                left.push(format!("bucket {} with id {id}: {}", request.name, text(&error)));
            }
        }
        let names = self.made().names;
        *self.made() = Inventory { names, ..Inventory::default() };
        left
    }

    fn made(&self) -> MutexGuard<'_, Inventory> {
        self.made.lock().unwrap()
    }
}

/// Returns whether the driver has rejected the call permanently and without effect. A sidecar retries after any other
/// error.
pub(crate) fn refuses(error: &Error) -> bool {
    let codes = [Code::InvalidArgument, Code::AlreadyExists, Code::Unimplemented, Code::OutOfRange, Code::NotFound];
    matches!(error, Error::Status(status) if codes.contains(&status.code()))
}

/// Returns the driver's error, or the failure of the call.
pub(crate) fn text(error: &Error) -> String {
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
fn is_clear<A>(result: &Result<A, Error>, has_earlier: bool) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if error.code() == Code::AlreadyExists => !has_earlier,
        Err(error) => refuses(error),
    }
}

/// Accepts a refused call, since it had no effect. `AlreadyExists` remains an error.
fn fine(error: Error) -> Result<(), Error> {
    if refuses(&error) && error.code() != Code::AlreadyExists { Ok(()) } else { Err(error) }
}

/// Accepts `NotFound`, regardless of the code that the specification requires.
fn gone(error: Error) -> Result<(), Error> {
    if error.code() == Code::NotFound { Ok(()) } else { Err(error) }
}
