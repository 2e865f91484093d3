//! Buckets, objects and keys, managed through Cloud Storage's JSON API.

use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use kube_provisioner::bucket::Credentials;
use serde_json::{Value, json};

use crate::api::{Api, CREATE_BUCKET, Call, Failure, encoded};

/// Maximum number of attempts to change a policy that other clients change concurrently.
const ROUNDS: usize = 5;
/// Number of objects that are deleted concurrently.
const AT_ONCE: usize = 24;

/// The buckets and keys of one project.
#[derive(Clone)]
pub(crate) struct Storage {
    pub(crate) api: Api,
    pub(crate) project: String,
}

/// State of a bucket name.
pub(crate) enum BucketState {
    Absent,
    /// The bucket belongs to another project, and the administrator cannot read it.
    Foreign,
    Bucket(Value),
}

/// A key, without its secret.
pub(crate) struct Key {
    pub(crate) id: String,
    pub(crate) email: String,
    pub(crate) active: bool,
}

impl Storage {
    /// Looks up the bucket of this name. Google answers 403 both for foreign buckets and if a permission is missing;
    /// the list of the project's own buckets distinguishes the two.
    pub(crate) async fn find_bucket(&self, name: &str) -> Result<BucketState, Failure> {
        let failure = match self.bucket(name).await {
            Ok(Some(bucket)) => return Ok(BucketState::Bucket(bucket)),
            Ok(None) => return Ok(BucketState::Absent),
            Err(failure) if failure.status() == Some(403) => failure,
            Err(failure) => return Err(failure),
        };
        let (project, prefix) = (encoded(&self.project), encoded(name));
        let path = format!("/storage/v1/b?project={project}&prefix={prefix}&maxResults=1&fields=items(name)");
        let doing = format!("look up the bucket {name} in the project");
        // The list is sorted, so the name itself comes first among names with this prefix.
        let list = self.api.execute(Call::new(Method::GET, path, "storage.buckets.list", doing)).await?;
        if list["items"][0]["name"] == name { Err(failure) } else { Ok(BucketState::Foreign) }
    }

    /// Returns the bucket of this name, in any project.
    pub(crate) async fn bucket(&self, name: &str) -> Result<Option<Value>, Failure> {
        let doing = format!("look up the bucket {name}");
        let path = format!("{}?projection=noAcl", bucket_path(name));
        self.api.find(Call::new(Method::GET, path, "storage.buckets.get", doing)).await
    }

    /// Returns all buckets of the project, with their labels.
    pub(crate) async fn buckets(&self) -> Result<Vec<Value>, Failure> {
        let fields = encoded("items(name,labels),nextPageToken");
        let path = format!("/storage/v1/b?project={}&maxResults=1000&fields={fields}", encoded(&self.project));
        let call = |path| Call::new(Method::GET, path, "storage.buckets.list", "list the buckets");
        self.api.list(&path, "items", call).await
    }

    /// Creates a bucket. Returns false if the name is taken.
    pub(crate) async fn create_bucket(&self, name: &str, body: Value) -> Result<bool, Failure> {
        let path = format!("/storage/v1/b?project={}&projection=noAcl", encoded(&self.project));
        let doing = format!("create the bucket {name}");
        match self.api.execute(Call::new(Method::POST, path, CREATE_BUCKET, doing).body(body)).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.status() == Some(409) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Updates a bucket. Fails if it has changed since it was read.
    pub(crate) async fn patch_bucket(&self, name: &str, live: &Value, body: Value) -> Result<(), Failure> {
        let metageneration = live["metageneration"].as_str().unwrap_or_default();
        let path = format!("{}?ifMetagenerationMatch={}&projection=noAcl", bucket_path(name), encoded(metageneration));
        let doing = format!("change the bucket {name}");
        self.api.execute(Call::new(Method::PATCH, path, "storage.buckets.update", doing).body(body)).await.map(drop)
    }

    /// Deletes a bucket. Returns false if it is not empty.
    pub(crate) async fn delete_bucket(&self, name: &str) -> Result<bool, Failure> {
        let doing = format!("delete the bucket {name}");
        match self.api.find(Call::new(Method::DELETE, bucket_path(name), "storage.buckets.delete", doing)).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.status() == Some(409) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Returns true if the bucket contains no objects, including noncurrent generations.
    pub(crate) async fn is_empty(&self, bucket: &str) -> Result<bool, Failure> {
        Ok(self.first_objects(bucket, 1).await?.is_empty())
    }

    /// Deletes the first objects with all their generations, and returns their number.
    pub(crate) async fn delete_some_objects(&self, bucket: &str) -> Result<usize, Failure> {
        let items = self.first_objects(bucket, 500).await?;
        let count = items.len();
        let deletions = stream::iter(items).map(|item| self.delete_object(bucket, item));
        deletions.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        Ok(count)
    }

    /// Returns a page of the bucket's objects with all their generations. Google may return empty pages before pages
    /// with objects.
    async fn first_objects(&self, bucket: &str, most: u32) -> Result<Vec<Value>, Failure> {
        let fields = encoded("items(name,generation),nextPageToken");
        let path = format!("{}/o?versions=true&maxResults={most}&fields={fields}", bucket_path(bucket));
        let mut page = String::new();
        loop {
            let doing = format!("list the objects of the bucket {bucket}");
            let call = Call::new(Method::GET, format!("{path}{page}"), "storage.objects.list", doing);
            // A bucket that does not exist has no objects.
            let mut list = self.api.find(call).await?.unwrap_or_default();
            let items = list["items"].take();
            match (items, list["nextPageToken"].as_str().filter(|token| !token.is_empty())) {
                (Value::Array(items), _) if !items.is_empty() => return Ok(items),
                (_, Some(token)) => page = format!("&pageToken={}", encoded(token)),
                (_, None) => return Ok(Vec::new()),
            }
        }
    }

    async fn delete_object(&self, bucket: &str, item: Value) -> Result<(), Failure> {
        let [name, generation] = ["name", "generation"].map(|field| item[field].as_str().unwrap_or_default());
        let path = format!("{}/o/{}?generation={}", bucket_path(bucket), encoded(name), encoded(generation));
        let doing = format!("delete an object of the bucket {bucket}");
        self.api.find(Call::new(Method::DELETE, path, "storage.objects.delete", doing)).await.map(drop)
    }

    /// Changes a bucket's policy if the change has an effect. Reads the policy again after a concurrent change.
    /// Succeeds if the bucket does not exist.
    pub(crate) async fn change_policy(&self, bucket: &str, change: impl Fn(&Value) -> Value) -> Result<(), Failure> {
        let path = format!("{}/iam", bucket_path(bucket));
        let mut rounds = 0;
        loop {
            let read = format!("{path}?optionsRequestedPolicyVersion=3");
            let doing = format!("read the policy of the bucket {bucket}");
            let found = self.api.find(Call::new(Method::GET, read, "storage.buckets.getIamPolicy", doing)).await?;
            let Some(live) = found else { return Ok(()) };
            let mut wanted = change(&live);
            if bindings(&wanted) == bindings(&live) {
                return Ok(());
            }
            wanted["version"] = 3.into();
            let doing = format!("set the policy of the bucket {bucket}");
            let call = Call::new(Method::PUT, path.clone(), "storage.buckets.setIamPolicy", doing).body(wanted);
            rounds += 1;
            match self.api.execute(call).await {
                Ok(_) => return Ok(()),
                // <https://cloud.google.com/storage/docs/json_api/v1/buckets/setIamPolicy>
                Err(failure) if matches!(failure.status(), Some(409 | 412)) && rounds < ROUNDS => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Returns the keys of a service account: none if the account does not exist.
    pub(crate) async fn keys(&self, email: &str) -> Result<Vec<Key>, Failure> {
        let path = format!("{}?serviceAccountEmail={}&maxResults=250", self.keys_path(), encoded(email));
        let call = |path| Call::new(Method::GET, path, "storage.hmacKeys.list", format!("list the keys of {email}"));
        let list = match self.api.list(&path, "items", call).await {
            Err(failure) if failure.status() == Some(404) => Vec::new(),
            list => list?,
        };
        Ok(list.iter().filter_map(key).filter(|key| key.email == email).collect())
    }

    /// Returns one key, of any service account.
    pub(crate) async fn key(&self, id: &str) -> Result<Option<Key>, Failure> {
        let doing = "look up a key of the claim";
        let path = format!("{}/{}", self.keys_path(), encoded(id));
        let found = self.api.find(Call::new(Method::GET, path, "storage.hmacKeys.get", doing)).await?;
        Ok(found.as_ref().and_then(key))
    }

    /// Creates a key. Only this response contains its secret.
    pub(crate) async fn create_key(&self, email: &str) -> Result<Credentials, Failure> {
        let path = format!("{}?serviceAccountEmail={}", self.keys_path(), encoded(email));
        let doing = format!("create a key for {email}");
        // If the response is lost, so is the key. The next attempt deletes it, see `keys.rs`.
        let call = Call::new(Method::POST, path, "storage.hmacKeys.create", doing.clone()).once();
        let made = self.api.execute(call).await?;
        let (id, secret) = (made["metadata"]["accessId"].as_str(), made["secret"].as_str());
        let key = id.zip(secret).map(|(id, secret)| Credentials::new(id, secret));
        key.ok_or_else(|| Failure::NoResponse { doing, reason: "the answer contains no key".to_owned() })
    }

    /// Deletes a key. Google deletes only inactive keys, so an active key is deactivated first.
    pub(crate) async fn delete_key(&self, key: &Key) -> Result<(), Failure> {
        let path = format!("{}/{}", self.keys_path(), encoded(&key.id));
        if key.active {
            let doing = format!("deactivate a key of {}", key.email);
            let call = Call::new(Method::PUT, path.clone(), "storage.hmacKeys.update", doing);
            if self.api.find(call.body(json!({"state": "INACTIVE"}))).await?.is_none() {
                return Ok(());
            }
        }
        let doing = format!("delete a key of {}", key.email);
        self.api.find(Call::new(Method::DELETE, path, "storage.hmacKeys.delete", doing)).await.map(drop)
    }

    fn keys_path(&self) -> String {
        format!("/storage/v1/projects/{}/hmacKeys", encoded(&self.project))
    }
}

fn bucket_path(name: &str) -> String {
    format!("/storage/v1/b/{}", encoded(name))
}

fn bindings(policy: &Value) -> &[Value] {
    policy["bindings"].as_array().map_or(&[], Vec::as_slice)
}

fn key(metadata: &Value) -> Option<Key> {
    let text = |name: &str| metadata[name].as_str().map(str::to_owned);
    let state = metadata["state"].as_str()?;
    (state != "DELETED").then_some(())?;
    Some(Key { id: text("accessId")?, email: text("serviceAccountEmail")?, active: state == "ACTIVE" })
}
