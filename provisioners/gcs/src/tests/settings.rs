//! Tests of the bucket settings in a claim's `additionalConfig`.

use std::sync::Arc;

use kube_provisioner::parameters;
use serde_json::{Value, json};

use super::{Claim, Fixture};

const RULE: &str = r#"{"rule":[{"action":{"type":"Delete"},"condition":{"age":3}}]}"#;

impl Fixture {
    fn asking(&self, class: &[(&str, &str)], config: &[(&str, &str)], applied: &[(&str, &str)]) -> Claim {
        let texts = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mut request = self.request("photos", class);
        request.config = Arc::new(parameters::from_map(&texts(config)).unwrap());
        request.config_texts = texts(config);
        request.applied_config = texts(applied);
        request
    }

    fn metadata(&self) -> Value {
        self.google.model().buckets["photos"].metadata.clone()
    }
}

#[tokio::test]
async fn settings_follow_the_claim() {
    let fixture = Fixture::new().await;
    let class = [("labels", "team=shop"), ("versioning", "false")];
    let asked = [
        ("bucketLifecycle", RULE),
        ("bucketStorageClass", "NEARLINE"),
        ("bucketTags", "cost-center=1,stage=test"),
        ("bucketVersioning", "Enabled"),
    ];
    let mut bucket = fixture.asking(&class, &asked, &asked).provision(&fixture.gcs).await.unwrap();
    let made = fixture.metadata();
    assert_eq!(made["lifecycle"]["rule"][0]["condition"]["age"], 3);
    assert_eq!([&made["storageClass"], &made["versioning"]["enabled"]], [&json!("NEARLINE"), &json!(true)]);
    let labels = |metadata: &Value| ["team", "cost-center", "stage"].map(|key| metadata["labels"][key].clone());
    assert_eq!(labels(&made), [json!("shop"), json!("1"), json!("test")]);
    // The claim removes labels, and an administrator adds one manually.
    fixture.google.model().buckets.get_mut("photos").unwrap().metadata["labels"]["hand"] = json!("x");
    let fewer = [("bucketTags", "stage=live"), ("bucketVersioning", "Suspended")];
    bucket = fixture.asking(&class, &fewer, &asked).after(&bucket).provision(&fixture.gcs).await.unwrap();
    let live = fixture.metadata();
    assert_eq!(labels(&live), [json!("shop"), Value::Null, json!("live")]);
    assert_eq!(live["labels"]["hand"], Value::Null);
    assert_eq!(live["labels"]["objectbucketclaim-uid"], "uid-of-photos");
    assert_eq!(live["versioning"]["enabled"], false);
    assert_eq!(live["lifecycle"]["rule"], json!([]));
    // The claim drops all settings, and a repeated call writes nothing.
    bucket = fixture.asking(&class, &[], &fewer).after(&bucket).provision(&fixture.gcs).await.unwrap();
    assert_eq!(labels(&fixture.metadata()), [json!("shop"), Value::Null, Value::Null]);
    let before = fixture.google.count("PATCH");
    drop(fixture.asking(&class, &[], &[]).after(&bucket).provision(&fixture.gcs).await.unwrap());
    assert_eq!(fixture.google.count("PATCH"), before);
}
