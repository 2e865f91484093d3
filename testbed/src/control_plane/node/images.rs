//! The images that every node contains. None are pulled from a registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::import_image;
use crate::control_plane::State;
use crate::oci::Image;

/// An image with a shell and its tools, under the name that Kubernetes' own end-to-end tests use.
pub const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2";
/// The image of the container that keeps a pod's namespaces alive.
pub(super) const PAUSE: &str = "localhost/pause:1";

const PROGRAM: &str = "/bin/busybox";

/// Creates and imports the images.
pub(in crate::control_plane) fn import_all(state: &State) -> anyhow::Result<()> {
    for archive in write_all(&state.dir)? {
        import_image(state, &archive)?;
        fs::remove_file(&archive)?;
    }
    Ok(())
}

/// Writes the images' archives into a directory.
pub(super) fn write_all(dir: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let program = Path::new(PROGRAM);
    let applets = Command::new(program).arg("--list").output().context("cannot run busybox")?;
    let mut busybox = Image::new(BUSYBOX).host_program(PROGRAM, program)?.directory("tmp", 0o1777).entrypoint(["sh"]);
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|&applet| applet != "busybox") {
        busybox = busybox.link(Path::new("bin").join(applet), PROGRAM);
    }
    busybox = busybox.env("PATH", "/bin").file("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\n");
    let pause = Image::new(PAUSE).host_program(PROGRAM, program)?.entrypoint([PROGRAM, "tail", "-f", "/dev/null"]);
    let archives = ["busybox.tar", "pause.tar"].map(|name| dir.join(name));
    busybox.write(&archives[0])?;
    pause.write(&archives[1])?;
    Ok(archives)
}
