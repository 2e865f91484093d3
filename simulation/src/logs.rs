//! The logs of the controllers, as lines of the trace.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Adds log lines of this thread to the trace by `note`, until the result is dropped.
pub(crate) fn into_trace<N: Fn(String) + Clone + Send + Sync + 'static>(note: N) -> impl Drop + use<N> {
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("kube_provisioner=debug,provisioner_runtime=debug"))
        .with_ansi(false)
        .without_time()
        .with_writer(move || Line(note.clone()))
        .finish()
        .set_default()
}

struct Line<N>(N);

impl<N: Fn(String)> io::Write for Line<N> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        (self.0)(format!("log: {}", String::from_utf8_lossy(line).trim()));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
