//! `cargo xtask book`: the guide of `docs/book` as HTML.

use std::process::ExitCode;

use anyhow::ensure;
use e2e::control_plane::cache_dir;
use e2e::guard::{Guard, Running};
use e2e::progress;

use crate::build;

/// The version that the guide is built with. It goes into a folder of its own, so that another one is built anew.
const MDBOOK: &str = "0.5.4";

pub(crate) async fn run(guard: &Guard) -> anyhow::Result<ExitCode> {
    let tools = cache_dir()?.join(format!("mdbook-{MDBOOK}"));
    let program = tools.join("bin/mdbook");
    if !program.exists() {
        progress::terminal().line("installing mdbook, once; this takes some minutes");
        let mut install = build::cargo(guard);
        install
            .args(["install", "mdbook", "--locked", "--no-default-features", "--version", MDBOOK, "--root"])
            .arg(&tools);
        ensure!(Running::start(install)?.ended().await?.success(), "mdbook cannot be installed; see above");
    }
    let mut command = build::command(guard, &program);
    command.args(["build", "docs/book", "--dest-dir"]).arg(e2e::workspace_root().join("target/book"));
    let built = Running::start(command)?.ended().await?.success();
    if built {
        println!("target/book/index.html");
    }
    Ok(if built { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
