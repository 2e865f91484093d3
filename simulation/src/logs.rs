//! What the controllers log, as lines of the trace.

use std::io;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::stage::Stage;

/// Until this is dropped, what is logged on this thread goes into the trace.
pub(crate) fn into_trace(stage: &Arc<Stage>) -> impl Drop + use<> {
    let stage = stage.clone();
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("kube_provisioner=debug,provisioner_runtime=debug"))
        .with_ansi(false)
        .without_time()
        .with_writer(move || Line(stage.clone()))
        .finish()
        .set_default()
}

struct Line(Arc<Stage>);

impl io::Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.note(|| format!("log: {}", String::from_utf8_lossy(line).trim()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
