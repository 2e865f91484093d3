//! Log set-up concerns the whole process, so it is tested in one of its own.

use std::fs::File;
use std::process::{Command, Stdio};

use provisioner_runtime::logs::{LogFormat, init};

#[test]
fn a_second_call_does_no_harm() {
    init(LogFormat::Text);
    init(LogFormat::Json);
    tracing::info!("still logged as text");
}

#[test]
fn a_line_that_cannot_be_written_stops_nothing() {
    const CHILD: &str = "WRITES_A_LINE";
    if std::env::var_os(CHILD).is_some() {
        init(LogFormat::Text);
        tracing::info!("lost");
        return;
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let name = "logs::a_line_that_cannot_be_written_stops_nothing";
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([name, "--exact", "--nocapture"]).env(CHILD, "").stdout(Stdio::null()).stderr(full);
    assert!(child.status().unwrap().success());
}
