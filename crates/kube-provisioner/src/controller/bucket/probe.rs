//! Checks for `/readyz` that the backends of classes can be reached.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::backend::BucketBackend;
use super::facts::OurClass;

/// The time limit of a backend, which is less than `/readyz` waits for all of them.
const LIMIT: Duration = Duration::from_secs(3);

/// Probes the backend itself, and the backend of each class. One reachable class is enough, since its work
/// continues. The unreachable ones are named in either case.
pub(super) async fn probe_backends(backend: &dyn BucketBackend, classes: Vec<Arc<OurClass>>) -> Result<String, String> {
    backend.probe().await.map_err(|error| error.to_string())?;
    let asked = classes.iter().filter_map(|class| {
        let parameters = class.parameters.as_ref().ok()?.parsed.clone();
        let answer = timeout(LIMIT, backend.probe_class(parameters));
        Some(async move {
            let problem = match answer.await {
                Ok(answer) => answer.err()?.to_string(),
                Err(_) => format!("no answer within {} s", LIMIT.as_secs()),
            };
            Some(format!("StorageClass {}: {problem}", class.name))
        })
    });
    let answers = join_all(asked).await;
    let mut failed: Vec<&str> = answers.iter().flatten().map(String::as_str).collect();
    failed.sort_unstable();
    let is_ready = failed.is_empty() || failed.len() < answers.len();
    if is_ready { Ok(failed.join("; ")) } else { Err(failed.join("; ")) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::net::TcpListener;

    use super::*;
    use crate::bucket::*;
    use crate::controller::bucket::facts::ReclaimPolicy;
    use crate::controller::shared::class_parameters::{ClassParameters, Parsed};
    use crate::error::{DeleteError, ProvisionError, StartError};

    struct Store;

    impl BucketProvisioner for Store {
        type Parameters = BTreeMap<String, String>;
        type Config = ();

        async fn create_bucket(&self, _: RequestOf<Self>) -> Result<Bucket, ProvisionError> {
            Err(ProvisionError::retry("not called"))
        }

        async fn delete_bucket(&self, _: ProvisionedBucket<Self::Parameters>) -> Result<(), DeleteError> {
            Err(DeleteError::retry("not called"))
        }

        async fn grant(&self, _: GrantOf<Self>) -> Result<Granted, ProvisionError> {
            Err(ProvisionError::retry("not called"))
        }

        async fn revoke(&self, _: GrantedAccount<Self::Parameters>) -> Result<(), DeleteError> {
            Err(DeleteError::retry("not called"))
        }
    }

    impl BucketHooks for Store {
        async fn probe_class(&self, parameters: Arc<Self::Parameters>) -> Result<(), StartError> {
            match &*parameters["endpoint"] {
                "hangs" => std::future::pending().await,
                endpoint => endpoint.parse::<Endpoint>()?.connect().await,
            }
        }
    }

    fn class(name: &str, endpoint: &str) -> Arc<OurClass> {
        let texts = Arc::new(BTreeMap::from([("endpoint".to_owned(), endpoint.to_owned())]));
        let parsed = Parsed::read::<BTreeMap<String, String>>(&texts).unwrap();
        Arc::new(OurClass {
            name: name.into(),
            fingerprint: 1,
            policy: ReclaimPolicy::Delete,
            bucket: None,
            allowed_config: None,
            parameters: Ok(ClassParameters { parsed, secrets: Vec::new() }),
            texts,
        })
    }

    // Rules: Z45.
    #[tokio::test(start_paused = true)]
    async fn is_ready_while_one_backend_can_be_reached() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = format!("http://{}", listener.local_addr().unwrap());
        let [good, dead, slow] = [class("good", &alive), class("dead", "http://127.0.0.1:1"), class("slow", "hangs")];
        let reached = async |classes: &[&Arc<OurClass>]| {
            probe_backends(&Store, classes.iter().map(|class| Arc::clone(class)).collect()).await
        };
        assert_eq!(reached(&[]).await, Ok(String::new()), "no class names a backend");
        assert_eq!(reached(&[&good]).await, Ok(String::new()));
        let refused = "StorageClass dead: cannot connect to http://127.0.0.1:1: Connection refused (os error 111)";
        assert_eq!(reached(&[&good, &dead]).await, Ok(refused.to_owned()));
        let both = format!("{refused}; StorageClass slow: no answer within 3 s");
        assert_eq!(reached(&[&slow, &dead]).await, Err(both.clone()));
        assert_eq!(reached(&[&slow, &good, &dead]).await, Ok(both));
    }
}
