//! `serve ADDRESS KEY-FILE` starts a server on the address and writes the administrator's key to the file.

use std::io;

#[tokio::main]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: serve ADDRESS KEY-FILE"));
    };
    let server = gcs_sim::Server::start_at(&address).await?;
    std::fs::write(file, server.admin_key())?;
    tokio::signal::ctrl_c().await
}
