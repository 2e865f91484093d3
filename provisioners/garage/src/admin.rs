//! Garage's admin API, version 2: <https://garagehq.deuxfleurs.fr/api/garage-admin-v2.html>.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3_client::{Credentials, Error, ErrorResponse, Http};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::lifecycle::Rule;

/// The pauses before retries of a call.
const PAUSES: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(900)];

/// A failed call and its remedy.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {cause}{advice}")]
pub(crate) struct Failure {
    doing: String,
    /// Part of the message, so it is not a `source`: the error chain would contain it twice.
    cause: Box<Error>,
    advice: String,
}

impl Failure {
    /// Creates the failure of an S3 request.
    pub(crate) fn of_s3(doing: String, cause: Error) -> Self {
        Self { doing, cause: Box::new(cause), advice: String::new() }
    }

    /// Returns whether Garage rejected the request as invalid.
    pub(crate) fn is_bad_request(&self) -> bool {
        self.cause.status() == Some(400)
    }

    fn code(&self) -> &str {
        self.cause.code()
    }
}

/// A key's permissions for a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Permissions {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Permission to change the bucket's website, CORS and lifecycle, and to delete it.
    pub(crate) owner: bool,
}

impl Permissions {
    pub(crate) const NONE: Self = Self { read: false, write: false, owner: false };

    pub(crate) fn any(self) -> bool {
        self != Self::NONE
    }

    /// Returns the permissions in `self` that `other` lacks.
    pub(crate) fn without(self, other: Self) -> Self {
        Self { read: self.read && !other.read, write: self.write && !other.write, owner: self.owner && !other.owner }
    }
}

/// A bucket.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketInfo {
    /// Unique to this bucket, even after its deletion.
    pub(crate) id: String,
    pub(crate) global_aliases: Vec<String>,
    /// The keys that have permissions or an alias for the bucket.
    pub(crate) keys: Vec<BucketInfoKey>,
    pub(crate) objects: i64,
    pub(crate) quotas: Quotas,
    #[serde(default)]
    pub(crate) lifecycle_rules: Option<Vec<Value>>,
}

impl BucketInfo {
    /// Returns whether no name and no key refers to the bucket. The key that lists it has probably created it: Garage
    /// writes an alias to the key's record first, and then to the bucket's record. The key's own list is not enough,
    /// because it also contains all buckets to which the key has lost its access.
    pub(crate) fn is_incomplete(&self) -> bool {
        let is_unused = |key: &BucketInfoKey| key.bucket_local_aliases.is_empty() && !key.permissions.any();
        self.global_aliases.is_empty() && self.objects == 0 && self.keys.iter().all(is_unused)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketInfoKey {
    #[serde(rename = "accessKeyId")]
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) permissions: Permissions,
    pub(crate) bucket_local_aliases: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Quotas {
    pub(crate) max_size: Option<u64>,
    pub(crate) max_objects: Option<u64>,
}

/// A key in a list.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) name: String,
    /// True if S3 no longer accepts the key, because an administrator has set its expiration.
    #[serde(default)]
    pub(crate) expired: bool,
}

/// A key with its buckets.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyInfo {
    secret_access_key: Option<String>,
    pub(crate) buckets: Vec<KeyInfoBucket>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyInfoBucket {
    pub(crate) id: String,
    pub(crate) local_aliases: Vec<String>,
}

/// A client of the admin API, with its token.
#[derive(Clone)]
pub(crate) struct Admin {
    http: Http,
    address: String,
    token: String,
    time_limit: Duration,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Admin {
    pub(crate) fn new(http: Http, address: String, token: String, time_limit: Duration) -> Self {
        Self { http, address, token, time_limit }
    }

    /// Returns the bucket with this global alias.
    pub(crate) async fn bucket_named(&self, name: &str) -> Result<Option<BucketInfo>, Failure> {
        let call = get("GetBucketInfo").query("globalAlias", name);
        none_if_absent(self.execute(call, || format!("look up the bucket {name}")).await)
    }

    pub(crate) async fn bucket(&self, id: &str) -> Result<Option<BucketInfo>, Failure> {
        none_if_absent(self.execute(get("GetBucketInfo").query("id", id), || format!("look up the bucket {id}")).await)
    }

    /// Creates a bucket with this name as a local alias of the key. The key has no permissions yet.
    pub(crate) async fn create_bucket(&self, name: &str, key: &str) -> Result<BucketInfo, Failure> {
        let body = json!({"localAlias": {"accessKeyId": key, "alias": name}});
        self.execute(post("CreateBucket", body).once(), || format!("create the bucket {name}")).await
    }

    /// Adds a global alias to the bucket. Garage refuses an alias of another bucket.
    pub(crate) async fn add_global_alias(&self, id: &str, name: &str) -> Result<BucketInfo, Failure> {
        let body = json!({"bucketId": id, "globalAlias": name});
        self.execute(post("AddBucketAlias", body), || format!("add the name {name} to the bucket")).await
    }

    /// Removes a global alias. Garage refuses to remove a bucket's last alias.
    pub(crate) async fn remove_global_alias(&self, id: &str, name: &str) -> Result<(), Failure> {
        let body = json!({"bucketId": id, "globalAlias": name});
        let call = post("RemoveBucketAlias", body);
        self.execute::<Value>(call, || format!("remove the name of the bucket {name}")).await.map(drop)
    }

    /// Adds a local alias of the key to the bucket.
    pub(crate) async fn add_local_alias(&self, id: &str, key: &str, name: &str) -> Result<BucketInfo, Failure> {
        let body = json!({"bucketId": id, "accessKeyId": key, "localAlias": name});
        self.execute(post("AddBucketAlias", body), || format!("mark the bucket {name} as the claim's")).await
    }

    /// Grants the key the wanted permissions, and revokes the others that it has.
    pub(crate) async fn set_permissions(
        &self,
        id: &str,
        key: &str,
        (has, wanted): (Permissions, Permissions),
    ) -> Result<(), Failure> {
        for (operation, permissions) in
            [("AllowBucketKey", wanted.without(has)), ("DenyBucketKey", has.without(wanted))]
        {
            if permissions.any() {
                let body = json!({"bucketId": id, "accessKeyId": key, "permissions": permissions});
                let doing = || format!("change the permissions of the key {key} for the bucket {id}");
                self.execute::<BucketInfo>(post(operation, body), doing).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn set_quotas(&self, id: &str, quotas: Quotas) -> Result<(), Failure> {
        let call = post("UpdateBucket", json!({"quotas": quotas})).query("id", id);
        self.execute::<BucketInfo>(call, || format!("set the quotas of the bucket {id}")).await.map(drop)
    }

    pub(crate) async fn set_lifecycle(&self, id: &str, rules: &[Rule]) -> Result<BucketInfo, Failure> {
        let call = post("UpdateBucket", json!({"lifecycleRules": rules})).query("id", id);
        self.execute(call, || format!("set the lifecycle of the bucket {id}")).await
    }

    /// Aborts all uploads. Otherwise, Garage would keep the uploaded data when it deletes the bucket.
    pub(crate) async fn end_uploads(&self, id: &str) -> Result<(), Failure> {
        let call = post("CleanupIncompleteUploads", json!({"bucketId": id, "olderThanSecs": 0}));
        self.execute::<Value>(call, || format!("abort the uploads of the bucket {id}")).await.map(drop)
    }

    /// Deletes an empty bucket. Returns `false` if the bucket is not empty.
    pub(crate) async fn delete_bucket(&self, id: &str) -> Result<bool, Failure> {
        let call = post("DeleteBucket", json!({})).query("id", id);
        match none_if_absent(self.execute::<Value>(call, || format!("delete the bucket {id}")).await) {
            Err(failure) if failure.code() == "BucketNotEmpty" => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Returns the keys whose IDs have this prefix.
    pub(crate) async fn keys(&self, prefix: &str) -> Result<Vec<Key>, Failure> {
        // A claim has far fewer keys than this limit.
        let call = get("ListKeys").query("offset", prefix).query("limit", "100");
        let mut keys: Vec<Key> = self.execute(call, || "list the keys of the claim".to_owned()).await?;
        keys.retain(|key| key.id.starts_with(prefix));
        Ok(keys)
    }

    /// Returns all keys.
    pub(crate) async fn all_keys(&self) -> Result<Vec<Key>, Failure> {
        let mut all: BTreeMap<String, Key> = BTreeMap::new();
        loop {
            let last = all.last_key_value().map(|(id, _)| id.clone()).unwrap_or_default();
            let call = get("ListKeys").query("offset", &last).query("limit", "1000");
            let page: Vec<Key> = self.execute(call, || "list the keys".to_owned()).await?;
            // A page begins with the last key of the previous page. Versions without paging always return all keys.
            let known = all.len();
            all.extend(page.into_iter().map(|key| (key.id.clone(), key)));
            if all.len() == known {
                return Ok(all.into_values().collect());
            }
        }
    }

    pub(crate) async fn key(&self, id: &str) -> Result<Option<KeyInfo>, Failure> {
        none_if_absent(self.execute(get("GetKeyInfo").query("id", id), || format!("look up the key {id}")).await)
    }

    /// Returns a key with its secret.
    pub(crate) async fn credentials(&self, id: &str) -> Result<Option<Credentials>, Failure> {
        let call = get("GetKeyInfo").query("id", id).query("showSecretKey", "true");
        let info: Option<KeyInfo> = none_if_absent(self.execute(call, || format!("read the key {id}")).await)?;
        Ok(info.and_then(|info| info.secret_access_key).map(|secret| Credentials::new(id, secret)))
    }

    /// Creates a key with this name. Garage refuses the ID of any existing or deleted key.
    pub(crate) async fn import_key(&self, key: &Credentials, name: &str) -> Result<(), Failure> {
        let body = json!({"accessKeyId": key.access_key_id, "secretAccessKey": key.secret_access_key, "name": name});
        let call = post("ImportKey", body).once();
        self.execute::<Value>(call, || "create a key for the claim".to_owned()).await.map(drop)
    }

    pub(crate) async fn delete_key(&self, id: &str) -> Result<(), Failure> {
        let call = post("DeleteKey", json!({})).query("id", id);
        none_if_absent(self.execute::<Value>(call, || format!("delete the key {id}")).await).map(drop)
    }

    /// Sends the call. Returns the decoded answer, or `null` if it has no body.
    async fn execute<T: DeserializeOwned>(&self, call: Call, doing: impl FnOnce() -> String) -> Result<T, Failure> {
        let failed = |cause: Error| {
            let advice = match (cause.status(), &cause) {
                (Some(403), _) => format!(
                    "; Garage does not accept the admin token, or the token's scope lacks {}: check token in the Secret that \
                     the class names in adminSecretName, or --admin-token-file",
                    call.operation
                ),
                (Some(400), _) if cause.to_string().contains("Unknown API endpoint") => {
                    "; this Garage has no admin API of version 2: it needs Garage 2.0 or later".to_owned()
                }
                (_, Error::NotS3 { .. }) => {
                    "; expected the admin API of Garage 2.0 or later at this address".to_owned()
                }
                _ => String::new(),
            };
            (cause, advice)
        };
        let answer = match self.answer(&call).await {
            Ok(answer) => serde_json::from_slice(if answer.is_empty() { b"null" } else { &answer })
                .map_err(|_| Error::NotS3 { endpoint: self.address.clone(), status: 200 }),
            Err(error) => Err(error),
        };
        answer.map_err(failed).map_err(|(cause, advice)| Failure { doing: doing(), cause: Box::new(cause), advice })
    }

    async fn answer(&self, call: &Call) -> Result<Bytes, Error> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let answer = self.http.send(&self.address, self.request(call)?, self.time_limit).await;
            let (transient, nothing_done) = match &answer {
                Ok((status, _)) => ([429, 500, 502, 503, 504].contains(status), *status == 429),
                Err(error) => (matches!(error, Error::Unreachable { .. }), false),
            };
            if transient
                && (call.repeatable || nothing_done)
                && let Some(pause) = pauses.next()
            {
                tokio::time::sleep(pause).await;
                continue;
            }
            let (status, body) = answer?;
            return if (200..300).contains(&status) { Ok(body) } else { Err(refusal(&self.address, status, &body)) };
        }
    }

    fn request(&self, call: &Call) -> Result<Request<Bytes>, Error> {
        let cannot = |_| Error::Request("the names in the request are too long".to_owned());
        let mut request = Request::new(call.body.clone());
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = format!("{}/v2/{}{}", self.address, call.operation, call.query).parse().map_err(cannot)?;
        let token = HeaderValue::try_from(format!("Bearer {}", self.token));
        let mut token =
            token.map_err(|_| Error::Request("the admin token contains characters that are not allowed".to_owned()))?;
        token.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, token);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(request)
    }
}

/// A call of the admin API.
struct Call {
    method: Method,
    operation: &'static str,
    query: String,
    body: Bytes,
    /// True if the call is idempotent.
    repeatable: bool,
}

impl Call {
    /// Marks the call as not repeatable, since it may have succeeded even if its answer was lost.
    fn once(self) -> Self {
        Self { repeatable: false, ..self }
    }

    fn query(mut self, name: &str, value: &str) -> Self {
        const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
        let before = if self.query.is_empty() { '?' } else { '&' };
        self.query.push_str(&format!("{before}{name}={}", utf8_percent_encode(value, UNRESERVED)));
        self
    }
}

fn get(operation: &'static str) -> Call {
    Call { method: Method::GET, operation, query: String::new(), body: Bytes::new(), repeatable: true }
}

fn post(operation: &'static str, body: Value) -> Call {
    Call { method: Method::POST, operation, query: String::new(), body: body.to_string().into(), repeatable: true }
}

fn none_if_absent<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(failure) if ["NoSuchBucket", "NoSuchAccessKey"].contains(&failure.code()) => Ok(None),
        Err(failure) => Err(failure),
    }
}

fn refusal(address: &str, status: u16, body: &[u8]) -> Error {
    #[derive(Deserialize)]
    struct Refusal {
        code: String,
        message: String,
    }
    match serde_json::from_slice::<Refusal>(body) {
        Ok(Refusal { code, message }) => Error::refusal(address, ErrorResponse::new(status, &code, &message, "")),
        Err(_) => Error::NotS3 { endpoint: address.to_owned(), status },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_missing_and_excess_permissions() {
        let permissions = |read, write, owner| Permissions { read, write, owner };
        let (has, wanted) = (permissions(true, false, true), permissions(true, true, false));
        assert_eq!(wanted.without(has), permissions(false, true, false));
        assert_eq!(has.without(wanted), permissions(false, false, true));
        assert_eq!(has.without(has), Permissions::NONE);
    }

    #[test]
    fn only_an_empty_bucket_without_names_and_keys_is_incomplete() {
        let is_incomplete = |global: &[&str], keys: Value, objects: i64| {
            let quotas = json!({"maxSize": null, "maxObjects": null});
            let bucket =
                json!({"id": "b-1", "globalAliases": global, "keys": keys, "objects": objects, "quotas": quotas});
            serde_json::from_value::<BucketInfo>(bucket).unwrap().is_incomplete()
        };
        let key = |read: bool, aliases: &[&str]| {
            let permissions = json!({"read": read, "write": false, "owner": false});
            json!([{"accessKeyId": "GK1", "name": "", "permissions": permissions, "bucketLocalAliases": aliases}])
        };
        assert!(is_incomplete(&[], json!([]), 0) && is_incomplete(&[], key(false, &[]), 0));
        assert!(!is_incomplete(&["photos"], json!([]), 0));
        assert!(!is_incomplete(&[], json!([]), 1));
        assert!(!is_incomplete(&[], key(false, &["photos"]), 0), "created through S3");
        assert!(!is_incomplete(&[], key(true, &[]), 0));
    }

    #[test]
    fn distinguishes_garage_refusals_from_other_answers() {
        let body =
            br#"{"code":"NoSuchBucket","message":"Bucket not found: x","region":"garage","path":"/v2/GetBucketInfo"}"#;
        let refused = refusal("http://garage", 404, body);
        assert_eq!((refused.status(), refused.code()), (Some(404), "NoSuchBucket"));
        // A proxy's own 404 does not mean that a bucket is absent.
        assert_eq!(refusal("http://garage", 404, b"<html>").status(), None);
        assert_eq!(get("GetKeyInfo").query("id", "a b").query("x", "&").query, "?id=a%20b&x=%26");
    }
}
