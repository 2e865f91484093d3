//! An in-process simulation of Google Cloud: tokens, service accounts, buckets, keys and objects, to the extent that
//! the provisioner and its pods use them.
//!
//! It is strict: tokens require a signed assertion, every policy change requires the etag, keys must be deactivated
//! before they can be deleted, and the S3 side checks signatures and the policy. Its error messages come from Google's
//! documentation, the storage testbench, and public reports.

mod json;
mod listing;
mod multipart;
mod objects;
pub mod signature;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// The only project.
pub const PROJECT: &str = "shop-project";
/// The administrator's service account.
pub const ADMIN: &str = "admin@shop-project.iam.gserviceaccount.com";
const ADMIN_KEY: &str = include_str!("admin-key.pem");

/// A running server. It stops with its runtime.
#[derive(Clone)]
pub struct Server {
    /// The address of every service: tokens, metadata, storage, IAM and S3.
    pub endpoint: String,
    model: Arc<Mutex<Model>>,
}

/// The state of the server.
#[derive(Default)]
pub struct Model {
    endpoint: String,
    /// Valid tokens.
    pub tokens: BTreeSet<String>,
    /// Number of tokens issued so far.
    pub tokens_made: u64,
    /// Service accounts by email address.
    pub accounts: BTreeMap<String, Account>,
    /// Buckets by name.
    pub buckets: BTreeMap<String, Bucket>,
    /// Names of buckets whose deletion has not ended.
    pub ending: BTreeSet<String>,
    /// Keys by id.
    pub keys: BTreeMap<String, Key>,
    /// Unfinished multipart uploads by id.
    pub uploads: BTreeMap<String, Upload>,
    /// Permissions that the administrator lacks.
    pub denied: BTreeSet<String>,
    /// Method and path of each request.
    pub log: Vec<String>,
    /// The injected faults.
    pub faults: Faults,
    requests: u64,
    counter: u64,
}

/// A service account.
pub struct Account {
    /// The description, which names the owner.
    pub description: String,
    /// The human-readable name.
    pub display_name: String,
    /// Number of further requests for which Cloud Storage does not know the account.
    pub unknown_for: u32,
    /// Number of further requests for which IAM does not show the account.
    pub hidden_for: u32,
}

/// A bucket.
pub struct Bucket {
    /// The owning project.
    pub project: String,
    /// Its settings, in the form of the JSON API.
    pub metadata: Value,
    /// The version of the settings; increases with every change.
    pub metageneration: u64,
    /// The IAM policy.
    pub policy: Value,
    /// The version of the policy; increases with every change.
    pub policy_etag: u64,
    /// Generations by object name, the live one last.
    pub objects: BTreeMap<String, Vec<(u64, Bytes)>>,
}

/// A multipart upload.
pub struct Upload {
    /// The bucket's name.
    pub bucket: String,
    /// The object's name.
    pub object: String,
    /// Parts by number.
    pub parts: BTreeMap<u32, Bytes>,
}

/// An HMAC key.
pub struct Key {
    /// The service account.
    pub email: String,
    /// True if active; only inactive keys can be deleted.
    pub active: bool,
    /// The signing secret.
    pub secret: String,
    /// The version of the key; increases with every change.
    pub etag: u64,
}

/// The injected faults. The first four fields are numbers N: the fault occurs at every Nth request; 0 means never.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// Responds with 503.
    pub unavailable: u64,
    /// Responds with 429.
    pub too_many: u64,
    /// Breaks the connection before the request is carried out.
    pub cut_before: u64,
    /// Breaks the connection after the request was carried out.
    pub cut_after: u64,
    /// The delay of every response.
    pub latency: Duration,
    /// Number of requests for which a new service account is unknown to Cloud Storage.
    pub spreading: u32,
    /// Number of requests for which IAM does not show a new service account.
    pub hiding: u32,
}

/// A request, decoded.
struct DecodedRequest {
    method: Method,
    path: String,
    query: BTreeMap<String, String>,
    pairs: Vec<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
}

struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Reply {
    fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Server {
    /// Starts a server on a free loopback port.
    pub async fn start() -> io::Result<Self> {
        Self::start_at("127.0.0.1:0").await
    }

    /// Starts a server on this address.
    pub async fn start_at(address: &str) -> io::Result<Self> {
        let listener = tokio::net::TcpListener::bind(address).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let model = Arc::new(Mutex::new(Model { endpoint: endpoint.clone(), ..Model::default() }));
        let shared = model.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let model = shared.clone();
                let service = hyper::service::service_fn(move |request| answer(model.clone(), request));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        Ok(Self { endpoint, model })
    }

    /// Returns the administrator's key file.
    pub fn admin_key(&self) -> String {
        json!({
            "type": "service_account", "project_id": PROJECT, "private_key_id": "k1", "client_email": ADMIN,
            "private_key": ADMIN_KEY, "token_uri": format!("{}/token", self.endpoint),
        })
        .to_string()
    }

    /// Locks the server's state, for inspection and modification.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap()
    }

    /// Describes the server's contents, without names of keys.
    pub fn assets(&self) -> Vec<String> {
        let model = self.model();
        let buckets = model.buckets.iter().map(|(name, bucket)| {
            let bindings = bucket.policy["bindings"].to_string();
            format!("bucket {name} of {}, {} objects, {bindings}", bucket.metadata["labels"], bucket.objects.len())
        });
        let accounts = model.accounts.iter().map(|(email, account)| format!("{email} {}", account.description));
        let keys = model.keys.values().map(|key| format!("key of {}, active {}", key.email, key.active));
        buckets.chain(accounts).chain(keys).collect()
    }

    /// Returns the number of requests that begin with this text.
    pub fn count(&self, request: &str) -> usize {
        self.model().log.iter().filter(|line| line.starts_with(request)).count()
    }
}

async fn answer(model: Arc<Mutex<Model>>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Cut> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let pairs: Vec<(String, String)> = pairs.map(|(name, value)| (decoded(name), decoded(value))).collect();
    // Split paths while they are encoded: names may contain slashes.
    let path = parts.uri.path().to_owned();
    let query = pairs.iter().cloned().collect();
    let request = DecodedRequest { method: parts.method, path, query, pairs, headers: parts.headers, body };
    let faults = model.lock().unwrap().faults;
    if !faults.latency.is_zero() {
        tokio::time::sleep(faults.latency).await;
    }
    let mut model = model.lock().unwrap();
    model.requests += 1;
    let now = model.requests;
    let at = |every: u64| every > 0 && now.is_multiple_of(every);
    if at(faults.cut_before) {
        return Err(Cut);
    }
    let is_admin = request.path.starts_with("/storage/v1") || request.path.starts_with("/v1/");
    let reply = match () {
        () if is_admin && at(faults.unavailable) => refusal(503, "backendError", "Backend Error"),
        () if is_admin && at(faults.too_many) => refusal(429, "rateLimitExceeded", "Rate limit exceeded."),
        () => model.answer(&request),
    };
    if at(faults.cut_after) {
        return Err(Cut);
    }
    let response = Response::builder().status(reply.status).header("metadata-flavor", "Google");
    let response = reply.headers.into_iter().fold(response, |response, (name, value)| response.header(name, value));
    Ok(response.body(Full::new(reply.body)).unwrap())
}

/// The error that breaks the connection.
#[derive(Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut")
    }
}

impl std::error::Error for Cut {}

impl Model {
    fn answer(&mut self, request: &DecodedRequest) -> Reply {
        self.log.push(format!("{} {}", request.method, request.path));
        let segments: Vec<String> = request.path[1..]
            .split('/')
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["token"] => self.token(request),
            ["computeMetadata", "v1", rest @ ..] => self.metadata(request, &rest.join("/")),
            ["storage", "v1", ..] | ["v1", ..] if !self.is_known(request) => {
                refusal(401, "authError", "Invalid Credentials")
            }
            ["storage", "v1", "projects", project, "hmacKeys", rest @ ..] => self.hmac(request, project, rest),
            ["storage", "v1", "b"] => self.buckets(request),
            ["storage", "v1", "b", name] => self.bucket(request, name),
            ["storage", "v1", "b", name, "iam"] => self.policy(request, name),
            ["storage", "v1", "b", name, "o"] => self.list_objects(request, name),
            ["storage", "v1", "b", name, "o", object] => self.delete_object(request, name, object),
            ["v1", "projects", project, "serviceAccounts", rest @ ..] => self.service_accounts(request, project, rest),
            _ => self.s3(request),
        }
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

fn ok(value: &Value) -> Reply {
    Reply::new(200, value.to_string())
}

fn done() -> Reply {
    Reply::new(204, Bytes::new())
}

fn refusal(status: u16, reason: &str, message: &str) -> Reply {
    let errors = json!([{"message": message, "domain": "global", "reason": reason}]);
    let body = json!({"error": {"code": status, "message": message, "errors": errors}});
    Reply::new(status, body.to_string())
}

/// Returns an error in the format of the IAM API.
fn status(status: u16, name: &str, message: &str) -> Reply {
    let body = json!({"error": {"code": status, "message": message, "status": name}});
    Reply::new(status, body.to_string())
}
