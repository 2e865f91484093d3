//! Log set-up concerns the whole process, so it is tested in one of its own.

use provisioner_runtime::logs::{LogFormat, init};

#[test]
fn a_second_call_does_no_harm() {
    init(LogFormat::Text);
    init(LogFormat::Json);
    tracing::info!("still logged as text");
}
