//! Tests of log initialization, which affects the whole process.

use std::fs::File;
use std::process::{Command, Stdio};

use provisioner_runtime::logs::{LogFormat, init};

#[test]
fn second_initialization_has_no_effect() {
    init(LogFormat::Text);
    init(LogFormat::Json);
    tracing::info!("still logged as text");
}

#[test]
fn unwritable_log_line_does_not_end_the_process() {
    const CHILD: &str = "WRITES_A_LINE";
    if std::env::var_os(CHILD).is_some() {
        init(LogFormat::Text);
        tracing::info!("lost");
        return;
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let name = "logs::unwritable_log_line_does_not_end_the_process";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([name, "--exact", "--nocapture"]).env(CHILD, "").stdout(Stdio::null()).stderr(full);
    assert!(child.status().unwrap().success());
}
