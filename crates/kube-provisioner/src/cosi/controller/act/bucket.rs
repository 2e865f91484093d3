//! Creates, looks up and deletes the bucket that a Bucket represents.

use driver_rpc::Code;
use provisioner_runtime::limiter::Flow;
use serde_json::{Value, json};

use super::{Actions, Step};
use crate::cosi::controller::objects::{BucketContent, BucketFacts, S3};
use crate::cosi::controller::outcome::{Done, Outcome, Stopped};
use crate::cosi::controller::secrets::bucket_info;

/// The group that these calls share. A Bucket does not name its class.
const GROUP: &str = "buckets";

impl Actions {
    pub(super) async fn provision(&self, bucket: &BucketFacts, step: &Step<'_>) -> Outcome {
        let Ok(content) = &bucket.content else { return Err(Stopped::Changed) };
        let (id, parameters) = (bucket.wanted_id(content), content.parameters.clone());
        let flow = Flow::creating(GROUP).of_tenant(content.claim.namespace.as_str());
        let made = self.call(step, flow, |token| {
            Box::pin(async move {
                match content.existing {
                    Some(_) => self.driver.find(id, parameters).await,
                    None => self.driver.create(id, parameters, &token).await,
                }
            })
        });
        let endpoint = made.await?;
        let status = json!({
            "readyToUse": true, "bucketID": id, "protocols": [S3], "bucketInfo": bucket_info(id, &endpoint),
            "error": Value::Null,
        });
        let metadata = json!({"uid": &*bucket.object.uid, "resourceVersion": bucket.object.version});
        let patch = json!({"metadata": metadata, "status": status});
        self.patch_bucket(bucket, Some("status"), patch).await?;
        let bucket = id.to_owned();
        Ok(if content.existing.is_some() { Done::AlreadyExists { bucket } } else { Done::Provisioned { bucket } })
    }

    /// Deletes the bucket, whether or not the status contains its ID: the finalizer means that it may exist. An ID of
    /// another bucket in the status has no effect.
    pub(super) async fn delete(&self, bucket: &BucketFacts, step: &Step<'_>) -> Outcome {
        let Ok(content) = &bucket.content else { return Err(Stopped::Changed) };
        let BucketContent { parameters, claim, .. } = content;
        let flow = Flow::removing(GROUP).of_tenant(claim.namespace.as_str());
        let (id, parameters) = (bucket.wanted_id(content), parameters.clone());
        let deleted =
            self.call(step, flow, |token| Box::pin(async move { self.driver.delete(id, parameters, &token).await }));
        deleted.await?;
        // An existing bucket is only deleted if the driver has created it, for another Bucket.
        let is_deleted = content.existing.is_none()
            || self
                .driver
                .find(id, content.parameters.clone())
                .await
                .is_err_and(|status| status.code() == Code::NotFound);
        self.release(bucket).await?;
        Ok(if is_deleted { Done::Deleted { bucket: id.to_owned() } } else { Done::Released })
    }
}
