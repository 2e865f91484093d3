//! Reads the Secrets that classes name.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use provisioner_runtime::controller::Context;
use provisioner_runtime::{Cache, CallError, call};

use super::secret_names::{SecretName, TemplateNames};
use crate::secrets::Secrets;

/// The timeout of a request without a controller's limit.
const LIMIT: Duration = Duration::from_secs(10);

/// The reason why a Secret could not be read.
pub(crate) enum SecretReadError {
    /// The class's parameters do not result in its name.
    Unnamed(String),
    Missing {
        namespace: String,
        name: String,
    },
    Failed(CallError),
}

/// Reads Secrets from the API server.
pub(crate) trait SecretReader: Sync {
    fn secret(&self, namespace: &str, name: &str) -> impl Future<Output = Result<Secret, CallError>> + Send;
}

impl<C: Cache> SecretReader for Context<C> {
    async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, CallError> {
        let api: Api<Secret> = Api::namespaced(self.client().clone(), namespace);
        self.request(api.get(name)).await
    }
}

/// Reads Secrets in programs and commands without a controller.
impl SecretReader for Client {
    async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, CallError> {
        let api: Api<Secret> = Api::namespaced(self.clone(), namespace);
        call(LIMIT, api.get(name)).await
    }
}

/// The operation during which [`SecretReadError::Failed`] occurs.
pub(crate) const READING: &str = "reading a Secret that the class names";

/// Reads the Secrets that a class names for a claim.
pub(crate) async fn read_secrets(
    reader: &impl SecretReader,
    named: &[SecretName],
    names: TemplateNames<'_>,
) -> Result<Secrets, SecretReadError> {
    let mut secrets = Secrets::default();
    for secret in named {
        let reference = secret.resolve(names).map_err(SecretReadError::Unnamed)?;
        read_secret(reader, &mut secrets, &secret.role, &reference).await?;
    }
    Ok(secrets)
}

/// Adds the data of this Secret under its role.
pub(crate) async fn read_secret(
    reader: &impl SecretReader,
    secrets: &mut Secrets,
    role: &str,
    (namespace, name): &(String, String),
) -> Result<(), SecretReadError> {
    match reader.secret(namespace, name).await {
        Ok(secret) => {
            let data = secret.data.unwrap_or_default();
            secrets.insert(role.to_owned(), data.into_iter().map(|(key, value)| (key, value.0)).collect());
            Ok(())
        }
        Err(CallError::NotFound) => Err(SecretReadError::Missing { namespace: namespace.clone(), name: name.clone() }),
        Err(error) => Err(SecretReadError::Failed(error)),
    }
}
