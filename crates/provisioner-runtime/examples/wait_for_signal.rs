//! Waits for SIGTERM or SIGINT, reports it, and then keeps running.

use provisioner_runtime::shutdown::on_signal;

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the parent process reads it")]
async fn main() -> std::io::Result<()> {
    let stop = on_signal()?;
    println!("ready");
    stop.cancelled().await;
    println!("cancelled");
    std::future::pending().await
}
