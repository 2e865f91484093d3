//! Pods that run on the real node.

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, LogParams};
use serde_json::{Value, json};

use super::TestSpace;
use crate::control_plane::BUSYBOX;

/// Long, because several pods unpack images and mount volumes concurrently, and nodes in user-mode Linux are slow.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

impl TestSpace {
    /// A pod that runs a shell script, with a claim's volume at `/data`, as a template. The script's output is the
    /// pod's result.
    pub fn script(&self, name: &str, claim: &str, script: &str) -> anyhow::Result<Value> {
        Ok(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace()},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                // Nodes that exist only as objects do not have this label.
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "containers": [{
                    "name": "main",
                    "image": BUSYBOX,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-ec", format!("{{\n{script}\n}} > /dev/termination-log 2>&1")],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        }))
    }

    /// Runs a pod to completion, and returns its script's output; fails if the script fails.
    pub async fn run(&self, pod: &Value) -> anyhow::Result<String> {
        let pod: Pod = serde_json::from_value(pod.clone())?;
        let name = self.create(&pod).await?.name_any();
        let ended = |pod: &Pod| matches!(phase(pod), Some("Succeeded" | "Failed"));
        let pod = self.wait_for_within(LIMIT, &self.api::<Pod>(), &name, "at its end", ended).await?;
        let ended = status(&pod).and_then(|status| status.state.as_ref()?.terminated.clone());
        let said = ended.and_then(|ended| ended.message).unwrap_or_default();
        ensure!(phase(&pod) == Some("Succeeded"), "the script of pod {name} failed: {said}");
        Ok(said.trim_end().to_owned())
    }

    /// Creates a pod and waits until its container runs.
    pub async fn start_pod(&self, pod: &Value) -> anyhow::Result<Pod> {
        let pod: Pod = serde_json::from_value(pod.clone())?;
        let name = self.create(&pod).await?.name_any();
        let runs = |pod: &Pod| status(pod).is_some_and(|status| status.started == Some(true));
        self.wait_for_within(LIMIT, &self.api::<Pod>(), &name, "running", runs).await
    }

    /// The output of a pod.
    pub async fn logs(&self, pod: &str) -> anyhow::Result<String> {
        Ok(self.api::<Pod>().logs(pod, &LogParams::default()).await?)
    }

    /// Runs a shell script in a running pod, and returns its output; fails if the script fails.
    pub fn exec(&self, pod: &str, script: &str) -> anyhow::Result<String> {
        self.kubectl().run(&["--namespace", self.namespace(), "exec", pod, "--", "/bin/sh", "-c", script])
    }

    /// Deletes a pod and waits until it no longer exists.
    pub async fn delete_pod(&self, name: &str) -> anyhow::Result<()> {
        let pods = self.api::<Pod>();
        pods.delete(name, &DeleteParams::default()).await.with_context(|| format!("cannot delete pod {name}"))?;
        self.wait_gone(&pods, name).await
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// The status of the only container.
fn status(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}
