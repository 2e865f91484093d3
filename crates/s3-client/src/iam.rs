//! Users and roles of [IAM](https://docs.aws.amazon.com/IAM/latest/APIReference/), their keys and policies.

mod roles;

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_iam::Client;
use aws_sdk_iam::config::Config;
use aws_sdk_iam::config::http::HttpResponse;
use aws_sdk_iam::config::retry::RetryConfig;
use aws_sdk_iam::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_iam::types::{StatusType, Tag};

use crate::client::{Settings, SettingsError, busy};
use crate::credentials::Credentials;
use crate::error::{Error, error};
use crate::interceptors::AnswerLimit;

/// The users and roles of one account.
#[derive(Clone)]
pub struct Iam {
    sdk: Client,
    endpoint: Arc<str>,
}

/// A user or a role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The ARN, which identifies it in policies.
    pub arn: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The ARN of the permissions boundary.
    pub permissions_boundary: Option<String>,
}

/// The parameters of a new user or role.
#[derive(Clone, Copy, Debug)]
pub struct NewIdentity<'a> {
    /// Its name, of at most 64 characters.
    pub name: &'a str,
    /// Its path, such as `/provisioner/`.
    pub path: &'a str,
    /// Its tags.
    pub tags: &'a BTreeMap<String, String>,
    /// The ARN of the permissions boundary.
    pub permissions_boundary: Option<&'a str>,
}

/// A user's access key, without the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessKey {
    /// Its id.
    pub id: String,
    /// True if it may be used.
    pub active: bool,
}

impl Iam {
    /// Creates a client that signs with these credentials.
    ///
    /// # Errors
    /// Fails if the endpoint is not valid.
    pub fn new(settings: &Settings, credentials: impl Into<SharedCredentialsProvider>) -> Result<Self, SettingsError> {
        let config = settings.sdk_config(credentials)?;
        let config = aws_sdk_iam::config::Builder::from(&config)
            .retry_classifier(busy())
            .interceptor(AnswerLimit(settings.answer_limit));
        Ok(Self { sdk: Client::from_conf(config.build()), endpoint: settings.name("IAM") })
    }

    /// Returns the AWS SDK client, for requests that this client has no method for.
    pub fn sdk(&self) -> &Client {
        &self.sdk
    }

    /// Returns a user; `None` if it does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn user(&self, name: &str) -> Result<Option<Identity>, Error> {
        let answer = self.unless_absent(self.sdk.get_user().user_name(name).send().await)?;
        Ok(answer.and_then(|answer| answer.user).map(|user| Identity {
            arn: user.arn,
            tags: user.tags.unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect(),
            permissions_boundary: user.permissions_boundary.and_then(|boundary| boundary.permissions_boundary_arn),
        }))
    }

    /// Returns the names of the users with this path.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn users(&self, path: &str) -> Result<Vec<String>, Error> {
        let users = self.sdk.list_users().path_prefix(path).into_paginator().items().send();
        let users = self.read(users.collect::<Result<Vec<_>, _>>().await)?;
        Ok(users.into_iter().map(|user| user.user_name).collect())
    }

    /// Creates a user. Creation requests are sent only once: a retry would be refused because the user exists.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `EntityAlreadyExists`, if the request fails.
    pub async fn create_user(&self, user: NewIdentity<'_>) -> Result<(), Error> {
        let boundary = user.permissions_boundary.map(str::to_owned);
        let request = self.sdk.create_user().user_name(user.name).path(user.path);
        let request = request.set_permissions_boundary(boundary).set_tags(tags(user.tags)?);
        self.read(request.customize().config_override(once()).send().await).map(drop)
    }

    /// Deletes a user without keys and policies. Succeeds if it no longer exists.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `DeleteConflict`, if the request fails.
    pub async fn delete_user(&self, name: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.delete_user().user_name(name).send().await).map(drop)
    }

    /// Returns a user's keys; empty if the user does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn access_keys(&self, user: &str) -> Result<Vec<AccessKey>, Error> {
        let keys = self.sdk.list_access_keys().user_name(user).into_paginator().items().send();
        let keys = self.unless_absent(keys.collect::<Result<Vec<_>, _>>().await)?.unwrap_or_default();
        let key = |key: aws_sdk_iam::types::AccessKeyMetadata| AccessKey {
            id: key.access_key_id.unwrap_or_default(),
            active: key.status == Some(StatusType::Active),
        };
        Ok(keys.into_iter().map(key).collect())
    }

    /// Creates a key. Its secret is only returned here.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `LimitExceeded` for a user who already has two keys, if the request fails.
    pub async fn create_access_key(&self, user: &str) -> Result<Credentials, Error> {
        let request = self.sdk.create_access_key().user_name(user).customize().config_override(once());
        let key = self.read(request.send().await)?.access_key;
        let key = key.ok_or_else(|| Error::NotS3 { endpoint: self.endpoint.to_string(), status: 200 })?;
        Ok(Credentials::new(key.access_key_id, key.secret_access_key))
    }

    /// Deletes a key. Succeeds if it no longer exists.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn delete_access_key(&self, user: &str, id: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.delete_access_key().user_name(user).access_key_id(id).send().await).map(drop)
    }

    /// Sets an inline policy of a user.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `NoSuchEntity`, `LimitExceeded` or `MalformedPolicyDocument`, if the request
    /// fails.
    pub async fn put_user_policy(&self, user: &str, policy: &str, document: &str) -> Result<(), Error> {
        let put = self.sdk.put_user_policy().user_name(user).policy_name(policy).policy_document(document);
        self.read(put.send().await).map(drop)
    }

    /// Returns the names of a user's inline policies; empty if the user does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn user_policies(&self, user: &str) -> Result<Vec<String>, Error> {
        let names = self.sdk.list_user_policies().user_name(user).into_paginator().items().send();
        Ok(self.unless_absent(names.collect::<Result<Vec<_>, _>>().await)?.unwrap_or_default())
    }

    /// Deletes an inline policy of a user. Succeeds if it no longer exists.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn delete_user_policy(&self, user: &str, policy: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.delete_user_policy().user_name(user).policy_name(policy).send().await).map(drop)
    }

    /// Returns the ARNs of the policies attached to a user; empty if the user does not exist.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn attached_policies(&self, user: &str) -> Result<Vec<String>, Error> {
        let policies = self.sdk.list_attached_user_policies().user_name(user).into_paginator().items().send();
        let policies = self.unless_absent(policies.collect::<Result<Vec<_>, _>>().await)?.unwrap_or_default();
        Ok(policies.into_iter().filter_map(|policy| policy.policy_arn).collect())
    }

    /// Detaches a policy from a user. Succeeds if it is not attached.
    ///
    /// # Errors
    /// Returns an [`Error`] if the request fails.
    pub async fn detach_policy(&self, user: &str, arn: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.detach_user_policy().user_name(user).policy_arn(arn).send().await).map(drop)
    }

    /// Deletes a policy that is not attached. Succeeds if it no longer exists.
    ///
    /// # Errors
    /// Returns an [`Error`], such as `DeleteConflict`, if the request fails.
    pub async fn delete_policy(&self, arn: &str) -> Result<(), Error> {
        self.unless_absent(self.sdk.delete_policy().policy_arn(arn).send().await).map(drop)
    }

    fn read<T, E>(&self, answer: Result<T, SdkError<E, HttpResponse>>) -> Result<T, Error>
    where
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        answer.map_err(|failed| error(&self.endpoint, failed))
    }

    fn unless_absent<T, E>(&self, answer: Result<T, SdkError<E, HttpResponse>>) -> Result<Option<T>, Error>
    where
        E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
    {
        match self.read(answer) {
            Err(error) if error.code() == "NoSuchEntity" => Ok(None),
            other => other.map(Some),
        }
    }
}

impl fmt::Debug for Iam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iam").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

fn tags(tags: &BTreeMap<String, String>) -> Result<Option<Vec<Tag>>, Error> {
    let tag = |(key, value): (&String, &String)| Tag::builder().key(key).value(value).build();
    let tags: Result<Vec<Tag>, _> = tags.iter().map(tag).collect();
    let tags = tags.map_err(|error| Error::Request(error.to_string()))?;
    Ok((!tags.is_empty()).then_some(tags))
}

/// Returns the configuration for requests that are sent only once.
fn once() -> aws_sdk_iam::config::Builder {
    Config::builder().retry_config(RetryConfig::disabled())
}
