//! A pod on a real node uses the Secret that the COSI controller wrote.

use anyhow::ensure;
use gcs_sim::Server;
use serde_json::json;
use testbed::control_plane::BUSYBOX;

use crate::cosi::native::Native;

// Rules: J14.
#[tokio::test]
async fn node_pod_receives_the_entries_of_the_secret() -> anyhow::Result<()> {
    let (native, google, files) = (Native::new("cosi-n-pod").await?, Server::start().await?, tempfile::tempdir()?);
    let program = native.start_on_google(&google, files.path())?;
    native.claim("photos", "delete").await?;
    native.access("web", &["photos"]).await?;
    let script = "echo $AWS_ENDPOINT_URL $BUCKET_NAME $AWS_DEFAULT_REGION $AWS_ACCESS_KEY_ID $AWS_SECRET_ACCESS_KEY";
    // The pod waits until the Secret exists.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "pod", "namespace": native.space.namespace()},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false, "enableServiceLinks": false,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{
                "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-ec", format!("{script} > /dev/termination-log")],
                "envFrom": [{"secretRef": {"name": "web-photos"}}],
            }],
        },
    });
    native.ready("BucketAccess", "web").await?;
    native.space.wait_for_message("BucketAccess", "web", "The Secrets have the account's key").await?;
    let told = native.space.run(&pod).await?;
    let entries = native.entries("web-photos").await?;
    let names = ["AWS_ENDPOINT_URL", "BUCKET_NAME", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    ensure!(told == names.map(|name| entries.get(name)).join(" "), "{told}");
    ensure!(entries.works().await?, "the key does not work");
    native.space.delete_pod("pod").await?;
    native.cosi.delete("BucketAccess", "web").await?;
    native.cosi.delete("BucketClaim", "photos").await?;
    native.gone("BucketClaim", "photos").await?;
    native.done(&program, &[entries.get("AWS_SECRET_ACCESS_KEY")]).await
}
