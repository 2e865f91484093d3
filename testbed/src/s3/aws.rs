//! Features of AWS that moto lacks, as a proxy for moto: it checks the permissions of one key with resources and
//! conditions, even for users that do not exist; returns users' permissions boundaries; accepts tags for a new bucket,
//! and blocks its public access; and hides new IAM users and roles for a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use percent_encoding::percent_decode_str;
use regex::Regex;
use s3_client::Client;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::Server;
use super::proxy::{ProxiedRequest, forward, listen, refusal, request, response};

/// moto's account.
const ACCOUNT: &str = "arn:aws:iam::123456789012";

/// The checked policy, and the delay of IAM.
#[derive(Clone)]
pub struct Rules {
    /// The id of the key.
    pub key: String,
    /// The key's policy. moto must allow at least as much.
    pub policy: Value,
    /// The time for which a new user or role is hidden.
    pub behind: Duration,
}

struct Aws {
    moto: Server,
    rules: Rules,
    /// Users and roles by name.
    made: Mutex<BTreeMap<Named, New>>,
}

/// The kind, `user` or `role`, and the name.
type Named = (&'static str, String);

struct New {
    at: Instant,
    boundary: String,
}

/// Starts the proxy and returns its address. It ends with its runtime.
pub async fn start(server: &Server, rules: Rules) -> anyhow::Result<String> {
    let aws = Arc::new(Aws { moto: server.clone(), rules, made: Mutex::default() });
    listen(move |mut stream| {
        let aws = aws.clone();
        async move {
            let (head, body) = request(&mut stream).await?;
            let asked = ProxiedRequest { number: 0, head, body: String::from_utf8_lossy(&body).into_owned() };
            let answer = aws.answer(&asked, &body).await?;
            anyhow::Ok(stream.write_all(&answer).await?)
        }
    })
    .await
}

impl Aws {
    async fn answer(&self, asked: &ProxiedRequest, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        if !asked.head.contains(&format!("Credential={}/", self.rules.key)) {
            return self.forward(asked, body).await;
        }
        if !self.is_allowed(asked).await? {
            return Ok(refusal(403, "AccessDenied", asked.is_iam()));
        }
        let named = named(asked);
        if ["GetUser", "GetRole"].contains(&asked.action()) && self.is_hidden(&named) {
            return Ok(refusal(404, "NoSuchEntity", true));
        }
        let new_bucket = match asked.s3_actions().first() {
            Some(&"CreateBucket") => !self.exists(asked.bucket()).await?,
            _ => false,
        };
        let answer = self.forward(asked, body).await?;
        if answer.starts_with(b"HTTP/1.1 200") {
            if ["CreateUser", "CreateRole"].contains(&asked.action()) {
                let boundary = decoded(asked.parameter("PermissionsBoundary"));
                self.made.lock().expect("no panics").insert(named, New { at: Instant::now(), boundary });
            } else if ["GetUser", "GetRole"].contains(&asked.action()) {
                return Ok(self.with_boundary(answer, &named));
            }
            if new_bucket {
                let admin = self.admin(asked)?;
                admin.put_public_access_block(asked.bucket()).await?;
                admin.put_bucket_tagging(asked.bucket(), &tags(&asked.body)?).await?;
            }
        }
        Ok(answer)
    }

    async fn forward(&self, asked: &ProxiedRequest, body: &[u8]) -> anyhow::Result<Vec<u8>> {
        forward(self.moto.endpoint.trim_start_matches("http://"), &asked.head, body).await
    }

    async fn is_allowed(&self, asked: &ProxiedRequest) -> anyhow::Result<bool> {
        if !asked.is_iam() {
            let resource = asked.resource();
            return Ok(asked.s3_actions().iter().all(|action| self.allows(&format!("s3:{action}"), &resource, "")));
        }
        let named = named(asked);
        let (kind, name) = (named.0, &named.1);
        let of_path = |path: String| format!("{ACCOUNT}:{kind}{path}{name}");
        let boundary = || self.made.lock().expect("no panics").get(&named).map(|new| new.boundary.clone());
        let iam = self.moto.iam()?;
        let (resource, boundary) = match asked.action() {
            "CreateUser" | "CreateRole" => {
                (of_path(decoded(asked.parameter("Path"))), decoded(asked.parameter("PermissionsBoundary")))
            }
            // The path of a user or role that does not exist is unknown.
            _ => match if kind == "role" { iam.role(name).await? } else { iam.user(name).await? } {
                Some(known) => (known.arn, boundary().unwrap_or_default()),
                None => (of_path("/".to_owned()), String::new()),
            },
        };
        let tags = asked.body.contains("Tags.member.");
        let tags = match asked.action() {
            "CreateUser" if tags => Some("TagUser"),
            "CreateRole" if tags => Some("TagRole"),
            _ => None,
        };
        let actions = [Some(asked.action()), tags];
        Ok(actions.into_iter().flatten().all(|action| self.allows(&format!("iam:{action}"), &resource, &boundary)))
    }

    fn allows(&self, action: &str, resource: &str, boundary: &str) -> bool {
        let statements = self.rules.policy["Statement"].as_array().into_iter().flatten();
        let mut allowing = statements.filter(|statement| statement["Effect"] == "Allow");
        allowing.any(|statement| {
            let condition = &statement["Condition"]["StringEquals"]["iam:PermissionsBoundary"];
            matches(&statement["Action"], action)
                && matches(&statement["Resource"], resource)
                && (condition.is_null() || !boundary.is_empty() && matches(condition, boundary))
        })
    }

    fn is_hidden(&self, named: &Named) -> bool {
        let made = self.made.lock().expect("no panics");
        made.get(named).is_some_and(|new| new.at.elapsed() < self.rules.behind)
    }

    /// Adds the boundary, which moto leaves out.
    fn with_boundary(&self, answer: Vec<u8>, named: &Named) -> Vec<u8> {
        let made = self.made.lock().expect("no panics");
        let boundary = made.get(named).map(|new| &new.boundary).filter(|boundary| !boundary.is_empty());
        let text = String::from_utf8_lossy(&answer);
        match (boundary, text.split_once("\r\n\r\n")) {
            (Some(boundary), Some((_, body))) => {
                let shown = format!("<PermissionsBoundaryArn>{boundary}</PermissionsBoundaryArn>");
                let tag = if named.0 == "role" { "</Role>" } else { "</User>" };
                let end = format!("<PermissionsBoundary>{shown}</PermissionsBoundary>{tag}");
                // moto includes the boundary of a role.
                let is_shown = body.contains("<PermissionsBoundary>");
                response(200, &if is_shown { body.to_owned() } else { body.replace(tag, &end) }).into_bytes()
            }
            _ => answer,
        }
    }

    async fn exists(&self, bucket: &str) -> anyhow::Result<bool> {
        Ok(self.moto.admin()?.bucket_exists(bucket).await?)
    }

    fn admin(&self, asked: &ProxiedRequest) -> anyhow::Result<Client> {
        let scope = asked.head.split("Credential=").nth(1).and_then(|scope| scope.split('/').nth(2));
        self.moto.admin_in(scope.context("it is not signed")?)
    }
}

impl ProxiedRequest {
    fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    fn bucket(&self) -> &str {
        let path = self.target().split('?').next().unwrap_or_default();
        path.split('/').nth(1).unwrap_or_default()
    }

    fn resource(&self) -> String {
        let path = self.target().split('?').next().unwrap_or_default();
        let path = path.trim_start_matches('/');
        let name = path.strip_suffix('/').filter(|bucket| !bucket.contains('/')).unwrap_or(path);
        format!("arn:aws:s3:::{}", decoded(name))
    }

    /// The actions of an S3 request:
    /// <https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html>.
    fn s3_actions(&self) -> Vec<&'static str> {
        let (path, query) = self.target().split_once('?').unwrap_or((self.target(), ""));
        let is_object = path.trim_start_matches('/').split_once('/').is_some_and(|(_, key)| !key.is_empty());
        let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        let method = self.head.split(' ').next().unwrap_or_default();
        if self.is_iam() {
            return Vec::new();
        }
        match (method, is_object) {
            ("PUT", false) if has("tagging") => vec!["PutBucketTagging"],
            ("PUT" | "DELETE", false) if has("publicAccessBlock") => vec!["PutBucketPublicAccessBlock"],
            ("PUT", false) if has("encryption") => vec!["PutEncryptionConfiguration"],
            ("PUT", false) if has("versioning") => vec!["PutBucketVersioning"],
            ("PUT", false) if has("object-lock") => vec!["PutBucketObjectLockConfiguration"],
            ("PUT" | "DELETE", false) if has("lifecycle") => vec!["PutLifecycleConfiguration"],
            ("PUT", false) => {
                let tags = self.body.contains("<Tags>").then_some("TagResource");
                let locks = self.head.contains("x-amz-bucket-object-lock-enabled");
                let locks = if locks { &["PutBucketObjectLockConfiguration", "PutBucketVersioning"][..] } else { &[] };
                ["CreateBucket"].into_iter().chain(tags).chain(locks.iter().copied()).collect()
            }
            ("GET", false) if has("tagging") => vec!["GetBucketTagging"],
            ("GET", false) if has("versions") => vec!["ListBucketVersions"],
            ("GET", false) if has("uploads") => vec!["ListBucketMultipartUploads"],
            ("GET", false) if has("ownershipControls") => vec!["GetBucketOwnershipControls"],
            ("DELETE", false) => vec!["DeleteBucket"],
            ("POST", false) if has("delete") => vec!["DeleteObject", "DeleteObjectVersion"],
            ("DELETE", true) if has("uploadId") => vec!["AbortMultipartUpload"],
            ("DELETE", true) if has("versionId") => vec!["DeleteObjectVersion"],
            ("DELETE", true) => vec!["DeleteObject"],
            _ => vec!["SomethingElse"],
        }
    }
}

/// True if one of the patterns matches the text.
fn matches(patterns: &Value, text: &str) -> bool {
    let one = |pattern: &Value| {
        let pattern = regex::escape(pattern.as_str().unwrap_or_default()).replace(r"\*", ".*");
        Regex::new(&format!("^{pattern}$")).is_ok_and(|pattern| pattern.is_match(text))
    };
    patterns.as_array().map_or_else(|| one(patterns), |patterns| patterns.iter().any(one))
}

/// The tags for a new bucket.
fn tags(body: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let tag = Regex::new("<Tag><Key>([^<]*)</Key><Value>([^<]*)</Value></Tag>")?;
    Ok(tag.captures_iter(body).map(|tag| (tag[1].to_owned(), tag[2].to_owned())).collect())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The user or role that an IAM request refers to.
fn named(asked: &ProxiedRequest) -> Named {
    match decoded(asked.parameter("RoleName")) {
        role if !role.is_empty() => ("role", role),
        _ => ("user", decoded(asked.parameter("UserName"))),
    }
}
