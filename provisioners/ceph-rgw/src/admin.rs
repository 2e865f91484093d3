//! The gateway's admin API.

use std::time::{Duration, SystemTime};

use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use bytes::Bytes;
use http::{Method, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3_client::{Credentials, Error, ErrorResponse, Http};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::quota::Quota;
use crate::users::Mark;

/// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The prefix of the IDs of temporary keys.
const TEMPORARY: &str = "temporary-";

/// The time limit for deleting a bucket and its contents.
const PURGE_TIME_LIMIT: Duration = Duration::from_secs(240);

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
    /// Creates the failure of a call with a user's key.
    pub(crate) fn of_user(doing: &str, cause: Error) -> Self {
        Self { doing: doing.to_owned(), cause: Box::new(cause), advice: String::new() }
    }

    /// Creates the failure of a call with the administrator's key, which needs this cap.
    fn of_admin(doing: String, cap: &str, cause: Error) -> Self {
        let advice = match cause.code() {
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" => {
                "; the gateway does not accept the admin key: check accessKey and secretKey in the Secret that the class \
                 names in adminSecretName, or the provisioner's own admin key"
                    .to_owned()
            }
            "AccessDenied" => format!(
                "; the admin user lacks the permission for that: radosgw-admin caps add --uid=<admin user> --caps=\"{cap}=*\""
            ),
            _ => String::new(),
        };
        Self { doing, cause: Box::new(cause), advice }
    }

    pub(crate) fn is_denied(&self) -> bool {
        ["AccessDenied", "UserSuspended"].contains(&self.cause.code())
    }

    pub(crate) fn timed_out(&self) -> bool {
        // A proxy in front of the gateway may have a shorter time limit.
        matches!(*self.cause, Error::TimedOut { .. } | Error::NotS3 { status: 504, .. })
    }
}

/// A user.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct User {
    #[serde(default)]
    pub(crate) display_name: String,
    #[serde(default)]
    pub(crate) keys: Vec<Key>,
    pub(crate) max_buckets: i64,
    pub(crate) user_quota: Quota,
    /// The account that owns the user's buckets. Gateways before Ceph 19 have no accounts.
    #[serde(default)]
    account_id: Option<String>,
}

impl User {
    /// Returns the mark that the provisioner has written into the display name.
    pub(crate) fn mark(&self) -> Option<Mark> {
        Mark::parse(&self.display_name)
    }

    /// Returns true if the user's buckets belong to an account of the gateway.
    pub(crate) fn is_of_account(&self) -> bool {
        self.account_id.as_ref().is_some_and(|id| !id.is_empty())
    }

    /// Returns the active key with this ID, or else the first active key. Temporary keys are ignored.
    pub(crate) fn key(&self, id: Option<&str>) -> Option<Credentials> {
        let active = || self.keys.iter().filter(|key| key.active && !key.is_temporary());
        let known = active().find(|key| Some(key.access_key.as_str()) == id);
        // A subuser may have fewer permissions than the user.
        known.or_else(|| active().min_by_key(|key| key.is_of_subuser())).map(Key::credentials)
    }

    /// Returns the key that a list contains in addition to the user's keys.
    pub(crate) fn new_key(&self, keys: &[Key]) -> Option<Credentials> {
        let is_new = |key: &&Key| self.keys.iter().all(|known| known.access_key != key.access_key);
        keys.iter().find(is_new).map(Key::credentials)
    }
}

#[derive(Clone, Deserialize)]
pub(crate) struct Key {
    pub(crate) access_key: String,
    secret_key: String,
    /// The user's ID, followed by a colon and the subuser's name if the key belongs to a subuser.
    #[serde(default)]
    user: String,
    /// Gateways before Ceph 19 do not deactivate keys.
    #[serde(default = "active")]
    pub(crate) active: bool,
}

fn active() -> bool {
    true
}

impl Key {
    /// Returns true if the provisioner has created the key for its own use.
    pub(crate) fn is_temporary(&self) -> bool {
        self.access_key.starts_with(TEMPORARY)
    }

    fn is_of_subuser(&self) -> bool {
        self.user.contains(':')
    }

    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::new(&self.access_key, &self.secret_key)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

/// A page of the list of users.
#[derive(Debug, Deserialize)]
struct UserPage {
    keys: Vec<String>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    marker: String,
}

/// A bucket.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct BucketInfo {
    /// Changes when the gateway reshards the bucket.
    pub(crate) id: String,
    /// Never changes, and is unique to this bucket.
    pub(crate) marker: String,
    pub(crate) owner: String,
    pub(crate) bucket_quota: Quota,
    /// The placement target, followed by a slash and the storage class if that is not `STANDARD`.
    #[serde(default)]
    pub(crate) placement_rule: String,
}

/// A client of the admin API. Requests are signed like S3 requests, with the administrator's key.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) http: Http,
    /// `http://host:port`.
    pub(crate) address: String,
    pub(crate) region: String,
    pub(crate) key: Credentials,
    pub(crate) time_limit: Duration,
}

impl Admin {
    pub(crate) async fn user(&self, id: &str) -> Result<Option<User>, Failure> {
        let failure = |error| Failure::of_admin(format!("look up the user {id}"), "users", error);
        absent_on(&["NoSuchUser"], self.fetch(request(Method::GET, "user").query("uid", id)).await, failure)
    }

    /// Creates a user with a key, unless the user exists.
    pub(crate) async fn create_user(&self, id: &str, display_name: &str, max_buckets: i64) -> Result<(), Failure> {
        let request = request(Method::PUT, "user").query("uid", id).query("display-name", display_name);
        let request = request.query("key-type", "s3").query("generate-key", "true");
        let made = self.execute(request.query("max-buckets", max_buckets.to_string())).await;
        let failure = |error| Failure::of_admin(format!("create the user {id}"), "users", error);
        absent_on(&["UserAlreadyExists"], made, failure).map(drop)
    }

    pub(crate) async fn set_display_name(&self, id: &str, display_name: &str) -> Result<(), Failure> {
        let set =
            self.execute(request(Method::POST, "user").query("uid", id).query("display-name", display_name)).await;
        set.map_err(|error| Failure::of_admin(format!("mark the user {id}"), "users", error))
    }

    pub(crate) async fn set_max_buckets(&self, id: &str, max_buckets: i64) -> Result<(), Failure> {
        let request = request(Method::POST, "user").query("uid", id).query("max-buckets", max_buckets.to_string());
        let set = self.execute(request).await;
        set.map_err(|error| Failure::of_admin(format!("limit the buckets of the user {id}"), "users", error))
    }

    /// Deletes a user who owns no buckets.
    pub(crate) async fn delete_user(&self, id: &str) -> Result<(), Failure> {
        let deleted = self.execute(request(Method::DELETE, "user").query("uid", id)).await;
        let failure = |error: Error| {
            let owns_buckets = error.status() == Some(409);
            let mut failure = Failure::of_admin(format!("delete the user {id}"), "users", error);
            if owns_buckets {
                failure.advice = format!("; the user still owns buckets: radosgw-admin bucket list --uid={id}");
            }
            failure
        };
        absent_on(&["NoSuchUser"], deleted, failure).map(drop)
    }

    /// Creates another key. Returns all keys.
    pub(crate) async fn create_key(&self, id: &str) -> Result<Vec<Key>, Failure> {
        let request = request(Method::PUT, "user").query("key", "").query("uid", id);
        let keys = self.fetch(request.query("key-type", "s3").query("generate-key", "true")).await;
        keys.map_err(|error| Failure::of_admin(format!("create a key for the user {id}"), "users", error))
    }

    /// Creates a key for the provisioner's own use. Its ID marks it as temporary, since the process may end before it
    /// deletes the key.
    pub(crate) async fn create_temporary_key(&self, id: &str) -> Result<Option<Credentials>, Failure> {
        let request = request(Method::PUT, "user").query("key", "").query("uid", id).query("key-type", "s3");
        let request = request.query("access-key", format!("{TEMPORARY}{id}")).query("generate-key", "true");
        let keys: Result<Vec<Key>, _> = self.fetch(request).await;
        let failure = |error| Failure::of_admin(format!("create a key for the user {id}"), "users", error);
        Ok(keys.map_err(failure)?.iter().find(|key| key.is_temporary()).map(Key::credentials))
    }

    pub(crate) async fn delete_key(&self, id: &str, access_key: &str) -> Result<(), Failure> {
        let request = request(Method::DELETE, "user").query("key", "").query("uid", id).query("key-type", "s3");
        let deleted = self.execute(request.query("access-key", access_key)).await;
        let failure = |error| Failure::of_admin(format!("delete a key of the user {id}"), "users", error);
        let is_absent = match &deleted {
            // The gateway also answers this if it does not accept the administrator's key.
            Err(error) if ["InvalidAccessKeyId", "NoSuchKey"].contains(&error.code()) => {
                let user = self.user(id).await?;
                !user.is_some_and(|user| user.keys.iter().any(|key| key.access_key == access_key))
            }
            _ => false,
        };
        if is_absent { Ok(()) } else { deleted.map(drop).map_err(failure) }
    }

    pub(crate) async fn set_user_quota(&self, id: &str, quota: Quota) -> Result<(), Failure> {
        let request = request(Method::PUT, "user").query("quota", "").query("quota-type", "user").query("uid", id);
        let set = self.execute(with_quota(request, quota)).await;
        set.map_err(|error| Failure::of_admin(format!("set the quota of the user {id}"), "users", error))
    }

    pub(crate) async fn bucket(&self, name: &str) -> Result<Option<BucketInfo>, Failure> {
        let answer = self.fetch(request(Method::GET, "bucket").query("bucket", name).query("stats", "true")).await;
        let failure = |error| Failure::of_admin(format!("look up the bucket {name}"), "buckets", error);
        absent_on(&["NoSuchBucket"], answer, failure)
    }

    /// Returns the IDs of all users.
    pub(crate) async fn users(&self) -> Result<Vec<String>, Failure> {
        let (mut ids, mut marker) = (Vec::new(), String::new());
        loop {
            let request = request(Method::GET, "user").query("list", "").query("max-entries", "1000");
            let page: Result<UserPage, _> = self.fetch(request.query("marker", &marker)).await;
            let page = page.map_err(|error| Failure::of_admin("list the users".to_owned(), "users", error))?;
            ids.extend(page.keys);
            if page.truncated && page.marker != marker { marker = page.marker } else { return Ok(ids) }
        }
    }

    /// Returns the names of the buckets that a user owns.
    pub(crate) async fn buckets_of(&self, owner: &str) -> Result<Vec<String>, Failure> {
        let list = self.fetch(request(Method::GET, "bucket").query("uid", owner)).await;
        list.map_err(|error| Failure::of_admin(format!("list the buckets of the user {owner}"), "buckets", error))
    }

    /// Transfers the bucket with this ID to another user. Other buckets with the same name are not affected.
    pub(crate) async fn give_bucket(&self, name: &str, id: &str, owner: &str) -> Result<(), Failure> {
        let request = request(Method::PUT, "bucket").query("bucket", name).query("bucket-id", id).query("uid", owner);
        let failure = |error| Failure::of_admin(format!("give the bucket {name} to its bucketOwner"), "buckets", error);
        self.execute(request).await.map_err(failure)
    }

    pub(crate) async fn set_bucket_quota(&self, name: &str, owner: &str, quota: Quota) -> Result<(), Failure> {
        let request = request(Method::PUT, "bucket").query("quota", "").query("uid", owner).query("bucket", name);
        let set = self.execute(with_quota(request, quota)).await;
        set.map_err(|error| Failure::of_admin(format!("set the quota of the bucket {name}"), "buckets", error))
    }

    /// Deletes a bucket, and its contents if `purge` is true. Returns `false` if the bucket is not empty.
    pub(crate) async fn delete_bucket(&self, name: &str, purge: bool) -> Result<bool, Failure> {
        let request = request(Method::DELETE, "bucket").query("bucket", name).query("purge-objects", purge.to_string());
        let deleted = self.send(request, PURGE_TIME_LIMIT).await.map(drop);
        let failure = |error| Failure::of_admin(format!("delete the bucket {name}"), "buckets", error);
        match deleted {
            // A part of the bucket no longer exists. Check whether the bucket itself exists.
            Err(error) if error.code() == "NoSuchKey" => match self.bucket(name).await? {
                None => Ok(true),
                Some(_) => Err(failure(error)),
            },
            Err(error) if !purge && error.code() == "BucketNotEmpty" => Ok(false),
            other => absent_on(&["NoSuchBucket"], other, failure).map(|_| true),
        }
    }

    async fn execute(&self, request: Request) -> Result<(), Error> {
        self.send(request, self.time_limit).await.map(drop)
    }

    async fn fetch<T: DeserializeOwned>(&self, request: Request) -> Result<T, Error> {
        let answer = self.send(request, self.time_limit).await?;
        serde_json::from_slice(&answer).map_err(|_| Error::NotS3 { endpoint: self.address.clone(), status: 200 })
    }

    /// Sends the request. Returns the body of the answer if its status is 2xx.
    async fn send(&self, request: Request, limit: Duration) -> Result<Bytes, Error> {
        let request = self.signed(request)?;
        let (status, body) = self.http.send(&self.address, request, limit).await?;
        if (200..300).contains(&status) { Ok(body) } else { Err(self.refusal(status, &body)) }
    }

    fn signed(&self, Request { method, path, query }: Request) -> Result<http::Request<Bytes>, Error> {
        let cannot = |error: &dyn std::error::Error| Error::Request(error.to_string());
        let encoded = |text: &str| utf8_percent_encode(text, ENCODED).to_string();
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let uri = format!("{}{path}?{}", self.address, query.join("&"));
        let uri: Uri = uri.parse().map_err(|error| cannot(&error))?;
        let mut request = http::Request::new(Bytes::new());
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        let (id, secret) = (&self.key.access_key_id, &self.key.secret_access_key);
        let identity = aws_credential_types::Credentials::new(id, secret, None, None, "admin").into();
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name("s3")
            .time(SystemTime::now())
            .settings(settings)
            .build()
            .map_err(|error| cannot(&error))?;
        let uri = request.uri().to_string();
        let signable =
            SignableRequest::new(request.method().as_str(), &uri, std::iter::empty(), SignableBody::Bytes(&[]));
        let signed = sign(signable.map_err(|error| cannot(&error))?, &parameters.into());
        let (instructions, _) = signed.map_err(|error| cannot(&error))?.into_parts();
        instructions.apply_to_request_http1x(&mut request);
        Ok(request)
    }

    /// <https://docs.ceph.com/en/latest/radosgw/adminops/#standard-error-responses>
    fn refusal(&self, status: u16, body: &[u8]) -> Error {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Refusal {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: String,
            #[serde(default)]
            request_id: String,
        }
        let refusal = if body.iter().all(u8::is_ascii_whitespace) {
            Refusal::default()
        } else {
            match serde_json::from_slice::<Refusal>(body) {
                Ok(refusal) if !refusal.code.is_empty() => refusal,
                _ => return Error::NotS3 { endpoint: self.address.clone(), status },
            }
        };
        Error::refusal(&self.address, ErrorResponse::new(status, &refusal.code, &refusal.message, &refusal.request_id))
    }
}

/// A request of the admin API.
struct Request {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
}

impl Request {
    /// Adds an argument. The value is empty for arguments without a value.
    fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }
}

fn request(method: Method, what: &str) -> Request {
    Request { method, path: format!("/admin/{what}"), query: vec![("format", "json".to_owned())] }
}

fn with_quota(request: Request, quota: Quota) -> Request {
    quota.arguments().into_iter().fold(request, |request, (name, value)| request.query(name, value))
}

fn absent_on<T>(
    codes: &[&str],
    result: Result<T, Error>,
    failure: impl FnOnce(Error) -> Failure,
) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if codes.contains(&error.code()) => Ok(None),
        Err(error) => Err(failure(error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn selects_an_active_key() {
        let user = |keys: Value| {
            let quota = json!({"enabled": false, "max_size": -1, "max_objects": -1});
            let user = json!({"display_name": "a", "keys": keys, "max_buckets": 1, "user_quota": quota});
            serde_json::from_value::<User>(user).unwrap()
        };
        let key = |id: &str, of: &str| json!({"user": of, "access_key": id, "secret_key": "s"});
        let mut inactive = key("B", "a");
        inactive["active"] = json!(false);
        let id = |key: Option<Credentials>| key.map(|key| key.access_key_id);
        let all = user(json!([key("A", "a:reader"), inactive, key("C", "a"), key("D", "a")]));
        for (wanted, used) in [(None, "C"), (Some("A"), "A"), (Some("B"), "C"), (Some("D"), "D"), (Some("E"), "C")] {
            assert_eq!(id(all.key(wanted)).as_deref(), Some(used), "{wanted:?}");
        }
        let unusable = user(json!([inactive, key("temporary-a", "a")]));
        assert!(unusable.key(Some("B")).is_none());
        assert_eq!(id(unusable.new_key(&all.keys[1..])).as_deref(), Some("C"));
        assert_eq!(id(user(json!([key("A", "a:reader")])).key(None)).as_deref(), Some("A"));
    }
}
