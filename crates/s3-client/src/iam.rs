//! [IAM](https://docs.aws.amazon.com/IAM/latest/APIReference/) and
//! [STS](https://docs.aws.amazon.com/STS/latest/APIReference/): users, their keys and policies, and keys for some time.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, header};

use crate::client::{Client, Request, Response};
use crate::encode;
use crate::error::{Error, refusal};
use crate::sign::Credentials;
use crate::xml::{self, Element};

const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
const IAM_VERSION: &str = "2010-05-08";
const STS_VERSION: &str = "2011-06-15";

/// The users of one account. The client's service is `iam`.
#[derive(Clone, Debug)]
pub struct Iam {
    client: Client,
}

/// A user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct User {
    /// The user's name for policies.
    pub arn: String,
    /// What somebody has written on it.
    pub tags: BTreeMap<String, String>,
}

/// A user that is to be.
#[derive(Clone, Copy, Debug)]
pub struct NewUser<'a> {
    /// Its name, of 64 characters at the most.
    pub name: &'a str,
    /// Where it stands, such as `/provisioner/`.
    pub path: &'a str,
    /// What is written on it.
    pub tags: &'a BTreeMap<String, String>,
    /// The policy that limits all others, by its ARN.
    pub permissions_boundary: Option<&'a str>,
}

/// A key of a user's, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessKey {
    /// Its id.
    pub id: String,
    /// Whether it may be used.
    pub active: bool,
}

impl Iam {
    /// IAM by this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// A user; `None` if there is none.
    ///
    /// # Errors
    /// As of every request.
    pub async fn user(&self, name: &str) -> Result<Option<User>, Error> {
        let answer = self.call("GetUser", vec![pair("UserName", name)]).await;
        let Some(answer) = unless_absent(answer)? else { return Ok(None) };
        let user = answer.child("GetUserResult").and_then(|result| result.child("User"));
        let user = user.ok_or_else(|| self.not_iam())?;
        let tags = user.child("Tags").into_iter().flat_map(|tags| tags.all("member"));
        Ok(Some(User {
            arn: user.text_of("Arn").to_owned(),
            tags: tags.map(|tag| (tag.text_of("Key").to_owned(), tag.text_of("Value").to_owned())).collect(),
        }))
    }

    /// The names of the users that stand at this path.
    ///
    /// # Errors
    /// As of every request.
    pub async fn users(&self, path: &str) -> Result<Vec<String>, Error> {
        let name = |user: &Element| user.text_of("UserName").to_owned();
        self.list("ListUsers", pair("PathPrefix", path), "Users", name).await
    }

    /// Makes a user.
    ///
    /// # Errors
    /// `EntityAlreadyExists` among others.
    pub async fn create_user(&self, user: NewUser<'_>) -> Result<(), Error> {
        let mut form = vec![pair("UserName", user.name), pair("Path", user.path)];
        form.extend(user.permissions_boundary.map(|boundary| pair("PermissionsBoundary", boundary)));
        for (number, (key, value)) in user.tags.iter().enumerate() {
            let number = number + 1;
            form.push(pair(format!("Tags.member.{number}.Key"), key));
            form.push(pair(format!("Tags.member.{number}.Value"), value));
        }
        self.call("CreateUser", form).await.map(drop)
    }

    /// Deletes a user that has no keys and no policies. Gone already is success.
    ///
    /// # Errors
    /// `DeleteConflict` among others.
    pub async fn delete_user(&self, name: &str) -> Result<(), Error> {
        unless_absent(self.call("DeleteUser", vec![pair("UserName", name)]).await).map(drop)
    }

    /// The ids of a user's keys; none where there is no user.
    ///
    /// # Errors
    /// As of every request.
    pub async fn access_keys(&self, user: &str) -> Result<Vec<AccessKey>, Error> {
        let key = |key: &Element| AccessKey {
            id: key.text_of("AccessKeyId").to_owned(),
            active: key.text_of("Status") == "Active",
        };
        self.list("ListAccessKeys", pair("UserName", user), "AccessKeyMetadata", key).await
    }

    /// Makes a key. Its secret is shown only here.
    ///
    /// # Errors
    /// `LimitExceeded` where the user has two keys, among others.
    pub async fn create_access_key(&self, user: &str) -> Result<Credentials, Error> {
        let answer = self.call("CreateAccessKey", vec![pair("UserName", user)]).await?;
        let key = answer.child("CreateAccessKeyResult").and_then(|result| result.child("AccessKey"));
        let key = key.ok_or_else(|| self.not_iam())?;
        Ok(Credentials::new(key.text_of("AccessKeyId"), key.text_of("SecretAccessKey")))
    }

    /// Deletes a key. Gone already is success.
    ///
    /// # Errors
    /// As of every request.
    pub async fn delete_access_key(&self, user: &str, id: &str) -> Result<(), Error> {
        let form = vec![pair("UserName", user), pair("AccessKeyId", id)];
        unless_absent(self.call("DeleteAccessKey", form).await).map(drop)
    }

    /// Sets a policy that belongs to a user.
    ///
    /// # Errors
    /// `NoSuchEntity`, `LimitExceeded` and `MalformedPolicyDocument` among others.
    pub async fn put_user_policy(&self, user: &str, policy: &str, document: &str) -> Result<(), Error> {
        let form = vec![pair("UserName", user), pair("PolicyName", policy), pair("PolicyDocument", document)];
        self.call("PutUserPolicy", form).await.map(drop)
    }

    /// The names of a user's own policies; none where there is no user.
    ///
    /// # Errors
    /// As of every request.
    pub async fn user_policies(&self, user: &str) -> Result<Vec<String>, Error> {
        self.list("ListUserPolicies", pair("UserName", user), "PolicyNames", |name| name.text.clone()).await
    }

    /// Deletes one of a user's own policies. Gone already is success.
    ///
    /// # Errors
    /// As of every request.
    pub async fn delete_user_policy(&self, user: &str, policy: &str) -> Result<(), Error> {
        let form = vec![pair("UserName", user), pair("PolicyName", policy)];
        unless_absent(self.call("DeleteUserPolicy", form).await).map(drop)
    }

    /// The ARNs of the policies that are attached to a user; none where there is no user.
    ///
    /// # Errors
    /// As of every request.
    pub async fn attached_policies(&self, user: &str) -> Result<Vec<String>, Error> {
        let arn = |policy: &Element| policy.text_of("PolicyArn").to_owned();
        self.list("ListAttachedUserPolicies", pair("UserName", user), "AttachedPolicies", arn).await
    }

    /// Detaches a policy from a user. Detached already is success.
    ///
    /// # Errors
    /// As of every request.
    pub async fn detach_policy(&self, user: &str, arn: &str) -> Result<(), Error> {
        let form = vec![pair("UserName", user), pair("PolicyArn", arn)];
        unless_absent(self.call("DetachUserPolicy", form).await).map(drop)
    }

    /// Deletes a policy that nobody has. Gone already is success.
    ///
    /// # Errors
    /// `DeleteConflict` among others.
    pub async fn delete_policy(&self, arn: &str) -> Result<(), Error> {
        unless_absent(self.call("DeletePolicy", vec![pair("PolicyArn", arn)]).await).map(drop)
    }

    /// All members of a list, page by page.
    async fn list<T>(
        &self,
        action: &str,
        of: (String, String),
        list: &str,
        read: impl Fn(&Element) -> T,
    ) -> Result<Vec<T>, Error> {
        let (mut all, mut marker) = (Vec::new(), None);
        loop {
            let mut form = vec![of.clone()];
            form.extend(marker.as_ref().map(|marker: &String| pair("Marker", marker)));
            let Some(answer) = unless_absent(self.call(action, form).await)? else { return Ok(all) };
            let result = answer.child(&format!("{action}Result")).ok_or_else(|| self.not_iam())?;
            all.extend(result.child(list).into_iter().flat_map(|list| list.all("member")).map(&read));
            marker = (result.text_of("IsTruncated") == "true").then(|| result.text_of("Marker").to_owned());
            if marker.is_none() {
                return Ok(all);
            }
        }
    }

    async fn call(&self, action: &str, form: Vec<(String, String)>) -> Result<Element, Error> {
        let mut request =
            Request::new(Method::POST, "/").header("content-type", FORM).body(body(action, IAM_VERSION, form));
        // What is created twice is there twice, or the second answer is that it exists.
        if !action.starts_with("Create") {
            request = request.repeatable();
        }
        let Response { status, body, .. } = self.client.request(request).await?;
        read(&body, action).ok_or_else(|| Error::NotS3 { endpoint: self.client.endpoint().to_owned(), status })
    }

    fn not_iam(&self) -> Error {
        Error::NotS3 { endpoint: self.client.endpoint().to_owned(), status: 200 }
    }
}

/// A role's key for some time, for a token of somebody whom the role trusts. `client` is that of STS.
///
/// # Errors
/// `AccessDenied`, `InvalidIdentityToken` and `ExpiredTokenException` among others.
pub async fn assume_role_with_web_identity(
    client: &Client,
    role_arn: &str,
    session: &str,
    token: &str,
) -> Result<Temporary, Error> {
    const ACTION: &str = "AssumeRoleWithWebIdentity";
    let form = vec![pair("RoleArn", role_arn), pair("RoleSessionName", session), pair("WebIdentityToken", token)];
    let request = http::Request::post("/").header(header::CONTENT_TYPE, FORM);
    let request = request.body(body(ACTION, STS_VERSION, form)).map_err(|error| Error::Request(error.to_string()))?;
    let Response { status, headers, body } = client.request_unsigned(request).await?;
    if !(200..300).contains(&status) {
        return Err(refusal(client.endpoint(), status, &headers, &body));
    }
    let not_sts = || Error::NotS3 { endpoint: client.endpoint().to_owned(), status };
    let answer = read(&body, ACTION).ok_or_else(not_sts)?;
    let result = answer.child("AssumeRoleWithWebIdentityResult").and_then(|result| result.child("Credentials"));
    let key = result.ok_or_else(not_sts)?;
    let session_token = Some(key.text_of("SessionToken").to_owned());
    let expires = key.text_of("Expiration").parse().map_err(|_| not_sts())?;
    let credentials =
        Credentials { session_token, ..Credentials::new(key.text_of("AccessKeyId"), key.text_of("SecretAccessKey")) };
    Ok(Temporary { credentials, expires })
}

/// A key for some time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Temporary {
    /// The key.
    pub credentials: Credentials,
    /// When it ends.
    pub expires: jiff::Timestamp,
}

fn pair(name: impl Into<String>, value: impl Into<String>) -> (String, String) {
    (name.into(), value.into())
}

fn body(action: &str, version: &str, mut form: Vec<(String, String)>) -> Bytes {
    form.extend([pair("Action", action), pair("Version", version)]);
    encode::query(&form).into()
}

fn read(body: &[u8], action: &str) -> Option<Element> {
    let root = xml::parse(str::from_utf8(body).ok()?)?;
    (root.name == format!("{action}Response")).then_some(root)
}

fn unless_absent<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
    match answer {
        Err(error) if error.code() == "NoSuchEntity" => Ok(None),
        other => other.map(Some),
    }
}
