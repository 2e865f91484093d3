//! The JSON APIs of Cloud Storage and IAM.

use http::Method;
use serde_json::{Value, json};

use super::{ADMIN, Account, Bucket, DecodedRequest, Key, Model, PROJECT, Reply, done, ok, refusal, status};

impl Model {
    pub(super) fn buckets(&mut self, request: &DecodedRequest) -> Reply {
        let project = request.query.get("project").cloned().unwrap_or_default();
        if request.method == Method::GET {
            return self.check_permission("storage.buckets.list").unwrap_or_else(|| {
                let prefix = request.query.get("prefix").cloned().unwrap_or_default();
                let mine = self.buckets.iter().filter(|(_, bucket)| bucket.project == project);
                // A page contains one bucket, so that the tests need several pages.
                let after = request.query.get("pageToken").cloned().unwrap_or_default();
                let mut items = mine.filter(|(name, _)| name.starts_with(&prefix) && **name > after);
                let first = items.next();
                let token = first.filter(|_| items.next().is_some()).map(|(name, _)| name);
                let item = first.map(|(name, bucket)| json!({"name": name, "labels": bucket.metadata["labels"]}));
                ok(&json!({"kind": "storage#buckets", "items": item.into_iter().collect::<Vec<_>>(), "nextPageToken": token}))
            });
        }
        if let Some(reply) = self.check_permission("storage.buckets.create") {
            return reply;
        }
        if project != PROJECT {
            return refusal(400, "invalid", &format!("Unknown project id: {project}"));
        }
        let mut metadata: Value = serde_json::from_slice(&request.body).unwrap();
        let name = metadata["name"].as_str().unwrap().to_owned();
        if self.ending.contains(&name) {
            return refusal(409, "conflict", "The bucket you tried to create was requested to be deleted recently.");
        }
        if let Some(bucket) = self.buckets.get(&name) {
            let message = if bucket.project == project {
                "Your previous request to create the named bucket succeeded and you already own it."
            } else {
                "The requested bucket name is not available. The bucket namespace is shared by all users of the \
                     system. Please select a different name and try again."
            };
            return refusal(409, "conflict", message);
        }
        if metadata["labels"].as_object().is_some_and(|labels| !labels.iter().all(|(key, value)| is_label(key, value)))
        {
            return refusal(400, "invalid", "Invalid argument.");
        }
        if let Some(reply) = refused_settings(&metadata) {
            return reply;
        }
        metadata["location"] = metadata["location"].as_str().unwrap_or("US").to_uppercase().into();
        let owner = json!({"role": "roles/storage.legacyBucketOwner", "members": [format!("projectOwner:{project}")]});
        let bucket = Bucket {
            project,
            metadata,
            metageneration: 1,
            policy: json!({"version": 1, "bindings": [owner]}),
            policy_etag: self.next(),
            objects: Default::default(),
        };
        let reply = ok(&shown(&name, &bucket));
        self.buckets.insert(name, bucket);
        reply
    }

    pub(super) fn bucket(&mut self, request: &DecodedRequest, name: &str) -> Reply {
        let permission = match request.method.as_str() {
            "GET" => "storage.buckets.get",
            "PATCH" => "storage.buckets.update",
            _ => "storage.buckets.delete",
        };
        if let Some(reply) = self.check_bucket_permission(name, permission) {
            return reply;
        }
        let bucket = self.buckets.get_mut(name).unwrap();
        match request.method.as_str() {
            "GET" => ok(&shown(name, bucket)),
            "PATCH" => {
                let wanted = request.query.get("ifMetagenerationMatch");
                if wanted.is_some_and(|wanted| *wanted != bucket.metageneration.to_string()) {
                    return precondition();
                }
                let patch: Value = serde_json::from_slice(&request.body).unwrap();
                if let Some(reply) = refused_settings(&patch) {
                    return reply;
                }
                merge(&mut bucket.metadata, &patch);
                bucket.metageneration += 1;
                ok(&shown(name, bucket))
            }
            _ if !bucket.objects.is_empty() => refusal(409, "conflict", "The bucket you tried to delete is not empty."),
            _ => {
                self.buckets.remove(name);
                self.uploads.retain(|_, upload| upload.bucket != name);
                done()
            }
        }
    }

    pub(super) fn policy(&mut self, request: &DecodedRequest, name: &str) -> Reply {
        let reads = request.method == Method::GET;
        let permission = if reads { "storage.buckets.getIamPolicy" } else { "storage.buckets.setIamPolicy" };
        if let Some(reply) = self.check_bucket_permission(name, permission) {
            return reply;
        }
        let next = self.next();
        let Self { buckets, accounts, .. } = self;
        let bucket = buckets.get_mut(name).unwrap();
        let answer = |bucket: &Bucket| {
            let mut policy = bucket.policy.clone();
            policy["kind"] = "storage#policy".into();
            policy["etag"] = format!("CA{}=", bucket.policy_etag).into();
            ok(&policy)
        };
        let conditional = |policy: &Value| {
            policy["bindings"].as_array().into_iter().flatten().any(|binding| !binding["condition"].is_null())
        };
        if reads {
            let version = request.query.get("optionsRequestedPolicyVersion").map(String::as_str);
            assert!(!conditional(&bucket.policy) || version == Some("3"), "conditions need version 3");
            return answer(bucket);
        }
        let mut policy: Value = serde_json::from_slice(&request.body).unwrap();
        let Some(etag) = policy["etag"].as_str() else { return refusal(400, "required", "etag is required here") };
        if etag != format!("CA{}=", bucket.policy_etag) {
            return precondition();
        }
        if conditional(&policy) && policy["version"] != 3 {
            return refusal(400, "invalid", "Policy version must be 3 with conditions");
        }
        for member in policy["bindings"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|binding| binding["members"].as_array())
            .flatten()
        {
            let Some(email) = member.as_str().and_then(|member| member.strip_prefix("serviceAccount:")) else {
                continue;
            };
            if !is_known(accounts, email) {
                return refusal(400, "invalid", &format!("Service account {email} does not exist."));
            }
        }
        for field in ["etag", "kind"] {
            policy.as_object_mut().unwrap().remove(field);
        }
        bucket.policy = policy;
        bucket.policy_etag = next;
        answer(bucket)
    }

    pub(super) fn list_objects(&mut self, request: &DecodedRequest, name: &str) -> Reply {
        if let Some(reply) = self.check_bucket_permission(name, "storage.objects.list") {
            return reply;
        }
        let most = request.query["maxResults"].parse().unwrap();
        let all = request.query.get("versions").is_some_and(|versions| versions == "true");
        let objects = self.buckets[name].objects.iter().flat_map(|(object, generations)| {
            let first = if all { 0 } else { generations.len() - 1 };
            generations[first..].iter().map(move |(generation, _)| (object, generation))
        });
        let items = objects.map(|(object, generation)| json!({"name": object, "generation": generation.to_string()}));
        let items: Vec<Value> = items.take(most).collect();
        // A page can be empty even if others follow.
        if !items.is_empty() && !request.query.contains_key("pageToken") {
            return ok(&json!({"kind": "storage#objects", "nextPageToken": "first"}));
        }
        ok(&json!({"kind": "storage#objects", "items": items}))
    }

    pub(super) fn delete_object(&mut self, request: &DecodedRequest, name: &str, object: &str) -> Reply {
        if let Some(reply) = self.check_bucket_permission(name, "storage.objects.delete") {
            return reply;
        }
        let objects = &mut self.buckets.get_mut(name).unwrap().objects;
        let generation: u64 = request.query["generation"].parse().unwrap();
        let found = objects.get_mut(object).is_some_and(|generations| {
            let before = generations.len();
            generations.retain(|(found, _)| *found != generation);
            generations.len() < before
        });
        objects.retain(|_, generations| !generations.is_empty());
        if found { done() } else { refusal(404, "notFound", &format!("No such object: {name}/{object}")) }
    }

    pub(super) fn hmac(&mut self, request: &DecodedRequest, project: &str, rest: &[&str]) -> Reply {
        let verb = match (request.method.as_str(), rest) {
            ("POST", []) => "create",
            ("GET", []) => "list",
            ("GET", [_]) => "get",
            ("PUT", [_]) => "update",
            _ => "delete",
        };
        if let Some(reply) = self.check_permission(&format!("storage.hmacKeys.{verb}")) {
            return reply;
        }
        let email = request.query.get("serviceAccountEmail").cloned().unwrap_or_default();
        match (verb, rest) {
            ("create", _) => {
                if !is_known(&mut self.accounts, &email) {
                    return refusal(404, "notFound", &format!("Service account {email} does not exist."));
                }
                if self.keys.values().filter(|key| key.email == email).count() >= 10 {
                    return refusal(
                        400,
                        "invalid",
                        "The maximum number of HMAC keys for the service account is reached.",
                    );
                }
                let number = self.next();
                let (id, secret) = (format!("GOOG1E{number:055}"), format!("hmac-secret-{number}"));
                let key = Key { email, active: true, secret: secret.clone(), etag: number };
                let made =
                    json!({"kind": "storage#hmacKey", "metadata": metadata(project, &id, &key), "secret": secret});
                self.keys.insert(id, key);
                ok(&made)
            }
            ("list", _) => {
                let mine = self.keys.iter().filter(|(_, key)| key.email == email);
                let items: Vec<Value> = mine.map(|(id, key)| metadata(project, id, key)).collect();
                ok(&json!({"kind": "storage#hmacKeysMetadata", "items": items}))
            }
            (verb, [id]) => {
                let next = self.next();
                let Some(key) = self.keys.get_mut(*id) else {
                    return refusal(404, "notFound", &format!("Access ID {id} does not exist."));
                };
                match verb {
                    "get" => ok(&metadata(project, id, key)),
                    "update" => {
                        let body: Value = serde_json::from_slice(&request.body).unwrap();
                        key.active = match body["state"].as_str() {
                            Some("ACTIVE") => true,
                            Some("INACTIVE") => false,
                            _ => return refusal(400, "invalid", "Invalid argument."),
                        };
                        key.etag = next;
                        ok(&metadata(project, id, key))
                    }
                    _ if key.active => refusal(400, "invalid", "Cannot delete keys in 'ACTIVE' state."),
                    _ => {
                        self.keys.remove(*id);
                        done()
                    }
                }
            }
            _ => refusal(404, "notFound", "Not Found"),
        }
    }

    pub(super) fn service_accounts(&mut self, request: &DecodedRequest, project: &str, rest: &[&str]) -> Reply {
        let verb = match request.method.as_str() {
            "POST" => "create",
            "GET" if rest.is_empty() => "list",
            "GET" => "get",
            _ => "delete",
        };
        let permission = format!("iam.serviceAccounts.{verb}");
        if self.denied.contains(&permission) {
            let message = format!("Permission '{permission}' denied on resource (or it may not exist).");
            return status(403, "PERMISSION_DENIED", &message);
        }
        if verb == "list" {
            let account = |(email, account): (&String, &Account)| {
                let Account { description, display_name, .. } = account;
                json!({"email": email, "displayName": display_name, "description": description})
            };
            return ok(&json!({"accounts": self.accounts.iter().map(account).collect::<Vec<_>>()}));
        }
        let [email] = rest else {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let id = body["accountId"].as_str().unwrap();
            assert!((6..=30).contains(&id.len()), "the length of {id}");
            if project != PROJECT {
                return status(404, "NOT_FOUND", &format!("Project {project} not found."));
            }
            let email = format!("{id}@{project}.iam.gserviceaccount.com");
            if self.accounts.contains_key(&email) {
                let message = format!("Service account {id} already exists within project projects/{project}.");
                return status(409, "ALREADY_EXISTS", &message);
            }
            let text = |name: &str| body["serviceAccount"][name].as_str().unwrap_or_default().to_owned();
            let account = Account {
                description: text("description"),
                display_name: text("displayName"),
                unknown_for: self.faults.spreading,
                hidden_for: self.faults.hiding,
            };
            assert!(account.display_name.len() <= 100 && account.description.len() <= 256);
            self.accounts.insert(email.clone(), account);
            return ok(&json!({ "email": email }));
        };
        let unknown = || status(404, "NOT_FOUND", &format!("Unknown service account: {email}"));
        let Some(account) = self.accounts.get_mut(*email) else { return unknown() };
        if verb == "get" {
            if account.hidden_for > 0 {
                account.hidden_for -= 1;
                return unknown();
            }
            let Account { description, display_name, .. } = account;
            return ok(&json!({"email": email, "displayName": display_name, "description": description}));
        }
        self.accounts.remove(*email);
        // After the deletion, policies refer to the account as deleted.
        let (found, gone) =
            (format!("\"serviceAccount:{email}\""), format!("\"deleted:serviceAccount:{email}?uid=1\""));
        for bucket in self.buckets.values_mut() {
            bucket.policy = serde_json::from_str(&bucket.policy.to_string().replace(&found, &gone)).unwrap();
        }
        ok(&json!({}))
    }

    /// Returns a refusal if the administrator lacks the permission.
    fn check_permission(&self, permission: &str) -> Option<Reply> {
        self.denied.contains(permission).then(|| {
            let message = format!(
                "{ADMIN} does not have {permission} access to the Google Cloud project. Permission '{permission}' denied on \
                 resource (or it may not exist)."
            );
            refusal(403, "forbidden", &message)
        })
    }

    fn check_bucket_permission(&self, name: &str, permission: &str) -> Option<Reply> {
        let Some(bucket) = self.buckets.get(name) else {
            return Some(refusal(404, "notFound", "The specified bucket does not exist."));
        };
        (bucket.project != PROJECT || self.denied.contains(permission)).then(|| {
            let message = format!(
                "{ADMIN} does not have {permission} access to the Google Cloud Storage bucket. Permission '{permission}' \
                 denied on resource (or it may not exist)."
            );
            refusal(403, "forbidden", &message)
        })
    }
}

fn is_known(accounts: &mut std::collections::BTreeMap<String, Account>, email: &str) -> bool {
    match accounts.get_mut(email) {
        Some(account) if account.unknown_for > 0 => {
            account.unknown_for -= 1;
            false
        }
        account => account.is_some(),
    }
}

fn metadata(project: &str, id: &str, key: &Key) -> Value {
    let state = if key.active { "ACTIVE" } else { "INACTIVE" };
    json!({
        "kind": "storage#hmacKeyMetadata", "id": format!("{project}/{id}"), "accessId": id, "projectId": project,
        "serviceAccountEmail": key.email, "state": state, "etag": format!("{}", key.etag),
    })
}

fn shown(name: &str, bucket: &Bucket) -> Value {
    let mut shown = bucket.metadata.clone();
    shown["name"] = name.into();
    shown["kind"] = "storage#bucket".into();
    shown["metageneration"] = bucket.metageneration.to_string().into();
    shown
}

fn refused_settings(metadata: &Value) -> Option<Reply> {
    let prevention = &metadata["iamConfiguration"]["publicAccessPrevention"];
    let seconds = metadata["softDeletePolicy"]["retentionDurationSeconds"].as_str().unwrap_or("0").parse::<u64>();
    let seconds = seconds.unwrap_or(1);
    let wrong = (!prevention.is_null() && prevention != "enforced" && prevention != "inherited")
        || (seconds != 0 && !(7 * 86_400..=90 * 86_400).contains(&seconds));
    wrong.then(|| refusal(400, "invalid", "Invalid argument."))
}

fn is_label(key: &str, value: &Value) -> bool {
    let fits = |text: &str| {
        let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
        text.len() <= 63 && text.bytes().all(fine)
    };
    fits(key) && key.starts_with(|first: char| first.is_ascii_lowercase()) && value.as_str().is_some_and(fits)
}

fn precondition() -> Reply {
    refusal(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
}

/// <https://www.rfc-editor.org/rfc/rfc7396>
fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.remove(key)),
            value => merge(target.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}
