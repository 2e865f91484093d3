//! Odd and long names.

use anyhow::{anyhow, ensure};

use super::fixture::{Fixture, PHOTOS, REGIONS};

/// XML cannot represent the first name, and S3 refuses a batch that contains it.
#[tokio::test]
async fn aws_objects_with_odd_names_are_deleted_with_all_versions() -> anyhow::Result<()> {
    for region in REGIONS {
        let fixture = Fixture::new(region).await?;
        let mut process = fixture.process();
        process.class = [("versioning".to_owned(), "true".to_owned())].into();
        let state = process.settle(PHOTOS).await.map_err(|error| anyhow!("{region}: {error}"))?;
        let admin = fixture.admin()?;
        for key in ["a\u{1}b", "\u{1f}", "tab\tend", "a b+c%41", "../x", "ü&<>"] {
            for text in ["one", "two"] {
                admin.put_object("photos", key, text).await?;
            }
            admin.delete_object("photos", key).await?;
        }
        assert_eq!(admin.list_object_versions("photos").await?.len(), 18);
        process.delete(PHOTOS, state).await?;
        let left = fixture.assets().await?;
        ensure!(left.is_empty(), "{region}: {left:?} remain");
    }
    Ok(())
}

/// Together, the longest namespace and claim names that Kubernetes allows exceed the length of a tag.
#[tokio::test]
async fn aws_longest_claim_names_are_accepted() -> anyhow::Result<()> {
    let fixture = Fixture::new(REGIONS[0]).await?;
    let process = fixture.process();
    let longest = ["n".repeat(63), "c".repeat(253)];
    let made = process.provision_with(PHOTOS, |request| {
        [request.claim.namespace, request.claim.name] = longest.clone();
    });
    let made = made.await.map_err(|error| anyhow!("{error}"))?;
    let tags = fixture.admin()?.bucket_tagging("photos").await?;
    assert_eq!(tags["kube-provisioner/claim"], longest.join("/")[..256]);
    process.delete(PHOTOS, made.state.clone()).await?;
    ensure!(fixture.assets().await?.is_empty(), "assets remain");
    Ok(())
}
