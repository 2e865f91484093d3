//! The fake of Google's services as a program: `fake-gcs ADDRESS KEY-FILE` serves there and writes the administrator's key.

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../src/tests/fake/mod.rs"]
mod fake;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err(std::io::Error::other("usage: fake-gcs ADDRESS KEY-FILE"));
    };
    let fake = fake::Fake::start_at(&address).await;
    std::fs::write(file, fake.admin_key())?;
    tokio::signal::ctrl_c().await
}
