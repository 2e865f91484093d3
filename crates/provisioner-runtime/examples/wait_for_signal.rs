//! Waits for SIGTERM or SIGINT, says so, and then takes no notice of the end that was asked for.

use provisioner_runtime::shutdown::on_signal;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "whoever started it reads it")]
async fn main() -> std::io::Result<()> {
    let stop = on_signal()?;
    println!("ready");
    stop.cancelled().await;
    println!("cancelled");
    std::future::pending().await
}
