//! The programs of a node, and their settings.

use std::fs;
use std::path::Path;

use serde_json::json;

use super::{Node, images};
use crate::control_plane::pki::Pki;
use crate::control_plane::state::{Health, Process};
use crate::packages;

const SOCKET: &str = "/run/containerd/containerd.sock";
const METRICS_PORT: u16 = 1338;
const HEALTH_PORT: u16 = 10248;

/// containerd and the kubelet, in the order in which they are started.
pub(in crate::control_plane) fn components(
    dir: &Path,
    node: &Node,
    kubelet: &Path,
    kubeconfig: &Path,
) -> anyhow::Result<[Process; 2]> {
    let own = dir.join("node");
    let containerd = own.join("containerd.toml");
    fs::write(&containerd, containerd_config(&own, node)?)?;
    let nsenter = packages::program("nsenter")?;
    // nsenter stays outside, as the parent. What it started must not outlive it.
    let inside = |program: &Path, arguments: &[String]| {
        let mut all = node.way_in();
        all.extend(["setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned));
        all.push(program.display().to_string());
        all.extend_from_slice(arguments);
        all
    };
    let process = |name: &str, url: String, arguments: Vec<String>| Process {
        name: name.to_owned(),
        id: None,
        program: nsenter.clone(),
        arguments,
        log: dir.join(format!("{name}.log")),
        health: Some(Health { url, says: String::new() }),
    };
    let address = node.address;
    Ok([
        process(
            "containerd",
            format!("http://{address}:{METRICS_PORT}/v1/metrics"),
            inside(&packages::program("containerd")?, &["--config".to_owned(), containerd.display().to_string()]),
        ),
        process(
            "kubelet",
            format!("http://{address}:{HEALTH_PORT}/healthz"),
            inside(
                kubelet,
                &[
                    format!("--config={}", own.join("kubelet.json").display()),
                    format!("--kubeconfig={}", kubeconfig.display()),
                    format!("--hostname-override={}", node.name),
                    format!("--node-ip={address}"),
                ],
            ),
        ),
    ])
}

/// Writes the kubelet's settings.
pub(in crate::control_plane) fn write_kubelet_config(dir: &Path, node: &Node, pki: &Pki) -> anyhow::Result<()> {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "tlsCertFile": pki.serving_cert,
        "tlsPrivateKeyFile": pki.serving_key,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": pki.ca },
        },
        "authorization": { "mode": "Webhook" },
        "healthzBindAddress": node.address,
        "healthzPort": HEALTH_PORT,
        "clusterDomain": "cluster.local",
        // There is no name server.
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "maxPods": 200,
        "serializeImagePulls": false,
        "kubeAPIQPS": 500,
        "kubeAPIBurst": 500,
        // A test waits for what the kubelet notices.
        "syncFrequency": "10s",
        // The machine may have control groups of version 1, no systemd, swap, a nearly full disk and few rights.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": false,
        // Nothing here is routed by iptables.
        "makeIPTablesUtilChains": false,
    });
    Ok(fs::write(dir.join("node/kubelet.json"), config.to_string())?)
}

fn containerd_config(own: &Path, node: &Node) -> anyhow::Result<String> {
    let networks = own.join("networks");
    fs::create_dir_all(&networks)?;
    let network = json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": node.network.pods() }]],
                "routes": [{ "dst": "0.0.0.0/0" }],
            },
        }],
    });
    fs::write(networks.join("10-pods.conflist"), network.to_string())?;
    let (own, networks, pause) = (own.display(), networks.display(), images::PAUSE);
    let (runc, address) = (packages::program("runc")?, node.address);
    let runc = runc.display();
    // Without `restrict_oom_score_adj` no pod starts where root may not lower it.
    Ok(format!(
        r#"version = 2
root = "{own}/containerd"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[metrics]
  address = "{address}:{METRICS_PORT}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runc}"
"#
    ))
}
