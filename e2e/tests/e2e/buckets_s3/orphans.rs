//! The command `orphans`.

use testbed::bucket_cases::{self as cases, BucketFixture as _};

use super::Fixture;

impl Fixture {
    async fn orphans(&self, more: &[&str]) -> anyhow::Result<(bool, String)> {
        let server = self.server();
        let variables = [("AWS_ACCESS_KEY_ID", &*server.access_key), ("AWS_SECRET_ACCESS_KEY", &*server.secret_key)];
        let arguments = ["orphans", "--endpoint", &server.endpoint, "--iam-endpoint", &server.endpoint];
        self.buckets.command("aws-s3-provisioner", &variables, &[&arguments, more].concat()).await
    }
}

// Rules: Z34.
#[tokio::test]
async fn aws_only_orphans_are_found_and_removed() -> anyhow::Result<()> {
    let case = async |fixture: &Fixture| {
        cases::orphans_are_found_and_removed(fixture, async |more: &[&str]| fixture.orphans(more).await).await
    };
    Fixture::case("s3-orphans", case).await
}
