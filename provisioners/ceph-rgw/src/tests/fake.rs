//! A gateway in this process: the parts of the admin API and of S3 that the provisioner uses, with a real gateway's
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// A running gateway. It ends with the test's runtime.
#[derive(Clone)]
pub(super) struct Fake {
    pub(super) endpoint: String,
    model: Arc<Mutex<Model>>,
}

#[derive(Default)]
struct Model {
    users: BTreeMap<String, User>,
    buckets: BTreeMap<String, Bucket>,
    log: Vec<String>,
    keys_made: usize,
    buckets_made: usize,
    /// Reject the administrator's key when it deletes a key.
    rejects: bool,
}

struct User {
    display_name: String,
    keys: BTreeMap<String, String>,
    max_buckets: i64,
    quota: Value,
}

struct Bucket {
    owner: String,
    marker: String,
    quota: Value,
    objects: BTreeMap<String, Bytes>,
    /// The contents of `?policy`, `?lifecycle`, `?tagging` and `?versioning`.
    settings: BTreeMap<String, Bytes>,
}

type Query = BTreeMap<String, String>;

struct Reply {
    status: u16,
    body: Bytes,
}

impl Fake {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let model = Arc::new(Mutex::new(Model::default()));
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
        Self { endpoint, model }
    }

    /// Sets whether the administrator's key is rejected when it deletes a key.
    pub(super) fn reject_deletions(&self, rejects: bool) {
        self.model.lock().unwrap().rejects = rejects;
    }

    /// Returns a line for each asset in the gateway.
    pub(super) fn assets(&self) -> Vec<String> {
        let model = self.model.lock().unwrap();
        let buckets = model.buckets.iter().map(|(name, bucket)| {
            let (owner, quota, policy) = (&bucket.owner, &bucket.quota, bucket.statements());
            format!("bucket {name} of {owner}, quota {quota}, policy {policy:?}")
        });
        let users = model.users.iter().map(|(id, user)| {
            let keys: Vec<_> = user.keys.keys().collect();
            format!("user {id} with the keys {keys:?}, quota {}", user.quota)
        });
        buckets.chain(users).collect()
    }

    /// Creates a bucket that does not belong to a claim. Returns `false` if the name is taken.
    pub(super) fn create_foreign_bucket(&self, name: &str) -> bool {
        let mut model = self.model.lock().unwrap();
        let is_free = !model.buckets.contains_key(name);
        if is_free {
            let bucket = Bucket {
                owner: "somebody".to_owned(),
                marker: format!("by-hand.{name}"),
                quota: no_quota(),
                objects: BTreeMap::new(),
                settings: BTreeMap::new(),
            };
            model.buckets.insert(name.to_owned(), bucket);
        }
        is_free
    }

    /// Removes a bucket.
    pub(super) fn remove(&self, name: &str) {
        self.model.lock().unwrap().buckets.remove(name);
    }

    /// Returns all requests, without the arguments that every request has.
    pub(super) fn log(&self) -> Vec<String> {
        self.model.lock().unwrap().log.clone()
    }
}

async fn answer(
    model: Arc<Mutex<Model>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = decoded(parts.uri.path());
    // `/bucket/` and `/bucket` name the same bucket.
    let path = path.strip_suffix('/').filter(|path| path.matches('/').count() == 1).unwrap_or(&path).to_owned();
    let query: Query = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect();
    let key = parts.headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = key.split_once("Credential=").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(key, _)| key);
    let reply = model.lock().unwrap().answer(&parts.method, &path, &query, key, body);
    Ok(Response::builder().status(reply.status).body(Full::new(reply.body)).unwrap())
}

impl Model {
    fn answer(&mut self, method: &Method, path: &str, query: &Query, key: &str, body: Bytes) -> Reply {
        let setting = ["key", "quota", "policy", "lifecycle", "tagging", "versioning"]
            .into_iter()
            .find(|name| query.contains_key(*name));
        self.log.push(format!("{method} {path}?{}", setting.unwrap_or_default()));
        match path.strip_prefix("/admin/") {
            Some(_) if key != "ADMIN" => match self.owner_of(key) {
                Some(_) => refusal(403, "AccessDenied"),
                None => refusal(403, "InvalidAccessKeyId"),
            },
            Some("user") => self.admin_user(method, query, setting),
            Some("bucket") => self.admin_bucket(method, query, setting),
            Some(_) => refusal(405, "MethodNotAllowed"),
            None => match self.owner_of(key) {
                Some(user) => in_xml(self.s3(method, path.trim_start_matches('/'), setting, &user, body)),
                None => in_xml(refusal(403, "InvalidAccessKeyId")),
            },
        }
    }

    fn owner_of(&self, key: &str) -> Option<String> {
        self.users.iter().find(|(_, user)| user.keys.contains_key(key)).map(|(id, _)| id.clone())
    }

    fn admin_user(&mut self, method: &Method, query: &Query, setting: Option<&str>) -> Reply {
        if method == Method::GET && query.contains_key("list") {
            // A page contains two users, so that the tests need several pages.
            let after = |id: &&String| query["marker"].is_empty() || **id >= query["marker"];
            let mut ids: Vec<_> = self.users.keys().filter(after).cloned().collect();
            let next = (ids.len() > 2).then(|| ids.split_off(2).swap_remove(0));
            let (truncated, marker) = (next.is_some(), next.unwrap_or_default());
            return json_reply(&json!({"keys": ids, "truncated": truncated, "marker": marker}));
        }
        let id = query["uid"].clone();
        let number = |name: &str| query.get(name).and_then(|text| text.parse::<i64>().ok());
        self.keys_made += 1;
        let new_id = query.get("access-key").cloned().unwrap_or_else(|| format!("KEY{}", self.keys_made));
        let new_key = (new_id, format!("secret{}", self.keys_made));
        if (method, setting) == (&Method::PUT, None) {
            if self.users.contains_key(&id) {
                return refusal(409, "UserAlreadyExists");
            }
            let max_buckets = number("max-buckets").unwrap_or(1000);
            let display_name = query["display-name"].clone();
            let user = User { display_name, keys: BTreeMap::from([new_key]), max_buckets, quota: no_quota() };
            self.users.insert(id, user);
            return json_reply(&json!({}));
        }
        let owns_buckets = self.buckets.values().any(|bucket| bucket.owner == id);
        let Some(user) = self.users.get_mut(&id) else { return refusal(404, "NoSuchUser") };
        match (method.as_str(), setting) {
            ("GET", None) => json_reply(&json!({
                "user_id": id, "display_name": user.display_name, "keys": keys(&id, user),
                "max_buckets": user.max_buckets, "user_quota": user.quota,
                "account_id": if id.ends_with("-member") { "RGW00000000000000001" } else { "" },
            })),
            ("POST", None) => {
                user.max_buckets = number("max-buckets").unwrap_or(user.max_buckets);
                if let Some(display_name) = query.get("display-name") {
                    user.display_name.clone_from(display_name);
                }
                json_reply(&json!({}))
            }
            ("DELETE", None) if owns_buckets => refusal(409, "BucketAlreadyExists"),
            ("DELETE", None) => {
                self.users.remove(&id);
                json_reply(&json!({}))
            }
            ("PUT", Some("key")) => {
                user.keys.insert(new_key.0, new_key.1);
                json_reply(&keys(&id, user))
            }
            ("DELETE", Some("key")) if self.rejects => refusal(403, "InvalidAccessKeyId"),
            ("DELETE", Some("key")) => match user.keys.remove(&query["access-key"]) {
                Some(_) => json_reply(&json!({})),
                None => refusal(403, "InvalidAccessKeyId"),
            },
            ("PUT", Some("quota")) => {
                user.quota = quota(query);
                json_reply(&json!({}))
            }
            _ => refusal(405, "MethodNotAllowed"),
        }
    }

    fn admin_bucket(&mut self, method: &Method, query: &Query, setting: Option<&str>) -> Reply {
        let Some(name) = query.get("bucket") else {
            let of = self.buckets.iter().filter(|(_, bucket)| bucket.owner == query["uid"]).map(|(name, _)| name);
            return json_reply(&of.cloned().collect());
        };
        let Some(bucket) = self.buckets.get_mut(name) else {
            return refusal(404, if setting == Some("quota") { "NoSuchKey" } else { "NoSuchBucket" });
        };
        match (method.as_str(), setting) {
            ("GET", None) => json_reply(&json!({
                "id": bucket.marker, "marker": bucket.marker, "owner": bucket.owner, "bucket_quota": bucket.quota,
                "placement_rule": "default-placement",
            })),
            ("PUT", None) if bucket.marker != query["bucket-id"] => refusal(400, "InvalidArgument"),
            ("PUT", None) => {
                bucket.owner.clone_from(&query["uid"]);
                json_reply(&json!({}))
            }
            ("PUT", Some("quota")) => {
                bucket.quota = quota(query);
                json_reply(&json!({}))
            }
            ("DELETE", None) if bucket.objects.is_empty() || query["purge-objects"] == "true" => {
                self.buckets.remove(name);
                json_reply(&json!({}))
            }
            ("DELETE", None) => refusal(409, "BucketNotEmpty"),
            _ => refusal(405, "MethodNotAllowed"),
        }
    }

    fn s3(&mut self, method: &Method, path: &str, setting: Option<&str>, user: &str, body: Bytes) -> Reply {
        let (name, key) = path.split_once('/').unwrap_or((path, ""));
        if name.is_empty() {
            return xml_reply("<ListAllMyBucketsResult/>");
        }
        if (method, key, setting) == (&Method::PUT, "", None) {
            return self.create_bucket(name, user, &String::from_utf8_lossy(&body));
        }
        let Some(bucket) = self.buckets.get_mut(name) else { return refusal(404, "NoSuchBucket") };
        if bucket.owner != user && (key.is_empty() || !bucket.allows(user, method)) {
            return refusal(403, "AccessDenied");
        }
        match (method.as_str(), setting) {
            ("PUT" | "DELETE", Some(setting)) if bucket.denies(setting) => refusal(403, "AccessDenied"),
            ("PUT", Some(setting)) => {
                bucket.settings.insert(setting.to_owned(), body);
                xml_reply("")
            }
            ("GET", Some(setting)) => match bucket.settings.get(setting) {
                Some(body) => Reply { status: 200, body: body.clone() },
                None => refusal(
                    404,
                    match setting {
                        "policy" => "NoSuchBucketPolicy",
                        "lifecycle" => "NoSuchLifecycleConfiguration",
                        // A bucket without this setting is not an error.
                        "versioning" => return xml_reply("<VersioningConfiguration/>"),
                        _ => "NoSuchTagSetError",
                    },
                ),
            },
            ("DELETE", Some(setting)) => {
                bucket.settings.remove(setting);
                xml_reply("")
            }
            ("PUT", None) => {
                bucket.objects.insert(key.to_owned(), body);
                xml_reply("")
            }
            ("GET" | "HEAD", None) => match bucket.objects.get(key) {
                Some(body) => Reply { status: 200, body: body.clone() },
                None => refusal(404, "NoSuchKey"),
            },
            _ => refusal(405, "MethodNotAllowed"),
        }
    }

    fn create_bucket(&mut self, name: &str, user: &str, body: &str) -> Reply {
        let location = body.split_once("<LocationConstraint>").and_then(|(_, rest)| rest.split_once('<'));
        if location.is_some_and(|(location, _)| location != ":default-placement") {
            return refusal(400, "InvalidLocationConstraint");
        }
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return refusal(400, "InvalidBucketName");
        }
        let owned = self.buckets.values().filter(|bucket| bucket.owner == user).count() as i64;
        let most = self.users[user].max_buckets;
        if most < 0 {
            return refusal(403, "AccessDenied");
        }
        if most > 0 && owned >= most {
            return refusal(400, "TooManyBuckets");
        }
        if self.buckets.get(name).is_some_and(|bucket| bucket.owner != user) {
            return refusal(409, "BucketAlreadyExists");
        }
        self.buckets_made += 1;
        let marker = format!("zone.{}", self.buckets_made);
        self.buckets.entry(name.to_owned()).or_insert_with(|| Bucket {
            owner: user.to_owned(),
            marker,
            quota: no_quota(),
            objects: BTreeMap::new(),
            settings: BTreeMap::new(),
        });
        xml_reply("")
    }
}

impl Bucket {
    /// Returns the statements of the bucket's policy.
    fn statements(&self) -> Vec<Value> {
        let policy = self.settings.get("policy").and_then(|text| serde_json::from_slice::<Value>(text).ok());
        policy.and_then(|policy| policy["Statement"].as_array().cloned()).unwrap_or_default()
    }

    /// Returns whether the policy forbids everyone to change this setting.
    fn denies(&self, setting: &str) -> bool {
        let action = match setting {
            "policy" => "s3:PutBucketPolicy",
            "tagging" => "s3:PutBucketTagging",
            "versioning" => "s3:PutBucketVersioning",
            _ => return false,
        };
        let has = |actions: &Value| actions.as_array().is_some_and(|actions| actions.contains(&json!(action)));
        self.statements().iter().any(|statement| statement["Effect"] == "Deny" && has(&statement["Action"]))
    }

    /// Returns whether the policy allows this user to read or write objects.
    fn allows(&self, user: &str, method: &Method) -> bool {
        let action = if method == Method::PUT { "s3:PutObject" } else { "s3:GetObject" };
        self.statements().iter().any(|statement| {
            let actions: BTreeSet<&str> =
                statement["Action"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            statement["Principal"]["AWS"][0] == format!("arn:aws:iam:::user/{user}") && actions.contains(action)
        })
    }
}

fn keys(id: &str, user: &User) -> Value {
    let key = |(access, secret): (&String, &String)| json!({ "user": id, "access_key": access, "secret_key": secret });
    user.keys.iter().map(key).collect()
}

fn no_quota() -> Value {
    json!({ "enabled": false, "check_on_raw": false, "max_size": -1, "max_size_kb": 0, "max_objects": -1 })
}

/// Reads a quota like Ceph 16.2, which uses `max-size-kb` and ignores `max-size`.
fn quota(query: &Query) -> Value {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let size = number("max-size-kb") * 1024;
    json!({ "enabled": query["enabled"] == "true", "max_size": size, "max_objects": number("max-objects") })
}

fn json_reply(value: &Value) -> Reply {
    Reply { status: 200, body: value.to_string().into() }
}

fn xml_reply(text: &'static str) -> Reply {
    Reply { status: 200, body: text.into() }
}

/// Converts an error to XML for S3. The admin API uses JSON.
fn in_xml(reply: Reply) -> Reply {
    let refusal = (reply.status >= 400).then(|| serde_json::from_slice::<Value>(&reply.body).ok()).flatten();
    match refusal.as_ref().and_then(|refusal| refusal["Code"].as_str()) {
        Some(code) => Reply { body: format!("<Error><Code>{code}</Code></Error>").into(), ..reply },
        None => reply,
    }
}

fn refusal(status: u16, code: &str) -> Reply {
    Reply { status, body: json!({ "Code": code, "RequestId": "tx1", "HostId": "fake" }).to_string().into() }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}
