//! What all provisioners of buckets do.

use testbed::bucket_cases as cases;

use super::fixture::Fixture;

async fn case(test: &str, case: impl AsyncFn(&Fixture) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let fixture = Fixture::new(test).await?;
    case(&fixture).await?;
    fixture.done().await
}

#[tokio::test]
async fn ceph_u1_u3_u7_u8_y1_y5_claims_of_a_late_class_are_served() -> anyhow::Result<()> {
    case("bucket-late", cases::claims_of_a_late_class_are_served).await
}

#[tokio::test]
async fn ceph_z3_z4_buckets_outlive_their_classes() -> anyhow::Result<()> {
    case("bucket-classes", cases::buckets_outlive_their_classes).await
}

#[tokio::test]
async fn ceph_z5_z6_z7_z8_what_is_of_others_stays() -> anyhow::Result<()> {
    case("bucket-others", cases::what_is_of_others_stays).await
}

#[tokio::test]
async fn ceph_z10_z11_claims_that_change_are_looked_at_at_once() -> anyhow::Result<()> {
    case("bucket-change", cases::claims_that_change_are_looked_at_at_once).await
}

#[tokio::test]
async fn ceph_z12_a_replica_takes_over() -> anyhow::Result<()> {
    case("bucket-two", cases::a_replica_takes_over).await
}

#[tokio::test]
async fn ceph_z17_a_bucket_with_objects_stays_if_its_class_says_so() -> anyhow::Result<()> {
    case("bucket-careful", cases::a_bucket_with_objects_stays_if_its_class_says_so).await
}

#[tokio::test]
async fn ceph_z30_claims_share_a_bucket() -> anyhow::Result<()> {
    case("bucket-share", cases::claims_share_a_bucket).await
}
