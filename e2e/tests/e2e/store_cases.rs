//! Tests that apply to all bucket provisioners, instantiated for an object store. Their module has the store's
//! name.

/// Defines the tests for a `BucketFixture`. The second argument is the prefix of their namespaces. A
/// third argument, the parameters of a class for full buckets, adds Z14.
macro_rules! store_cases {
    ($fixture:ty, $prefix:literal, $full:expr) => {
        crate::store_cases::store_cases!($fixture, $prefix);

        // Rules: Z14.
        #[tokio::test]
        async fn a_full_bucket_is_deleted_while_others_are_served() -> anyhow::Result<()> {
            let case = async |fixture: &$fixture| {
                testbed::bucket_cases::a_full_bucket_is_deleted_while_others_are_served(fixture, $full).await
            };
            <$fixture>::case(concat!($prefix, "-full"), case).await
        }
    };
    ($fixture:ty, $prefix:literal) => {
        use testbed::bucket_cases::BucketFixture as _;

        // Rules: U1, U3, U7, U8, Y1, Y5.
        #[tokio::test]
        async fn claims_are_provisioned_once_their_class_exists() -> anyhow::Result<()> {
            <$fixture>::case(
                concat!($prefix, "-late"),
                testbed::bucket_cases::claims_are_provisioned_once_their_class_exists,
            )
            .await
        }

        // Rules: Z3, Z4.
        #[tokio::test]
        async fn buckets_outlive_their_classes() -> anyhow::Result<()> {
            <$fixture>::case(concat!($prefix, "-classes"), testbed::bucket_cases::buckets_outlive_their_classes).await
        }

        // Rules: Z5, Z6, Z7, Z8.
        #[tokio::test]
        async fn foreign_objects_stay() -> anyhow::Result<()> {
            <$fixture>::case(concat!($prefix, "-others"), testbed::bucket_cases::foreign_objects_stay).await
        }

        // Rules: Z10, Z11.
        #[tokio::test]
        async fn changed_claims_are_reconciled_at_once() -> anyhow::Result<()> {
            let case = testbed::bucket_cases::changed_claims_are_reconciled_at_once;
            <$fixture>::case(concat!($prefix, "-change"), case).await
        }

        // Rules: Z12.
        #[tokio::test]
        async fn a_replica_takes_over() -> anyhow::Result<()> {
            <$fixture>::case(concat!($prefix, "-two"), testbed::bucket_cases::a_replica_takes_over).await
        }

        // Rules: Z17.
        #[tokio::test]
        async fn delete_if_empty_keeps_a_bucket_with_objects() -> anyhow::Result<()> {
            let case = testbed::bucket_cases::delete_if_empty_keeps_a_bucket_with_objects;
            <$fixture>::case(concat!($prefix, "-careful"), case).await
        }

        // Rules: Z30.
        #[tokio::test]
        async fn claims_share_a_bucket() -> anyhow::Result<()> {
            <$fixture>::case(concat!($prefix, "-share"), testbed::bucket_cases::claims_share_a_bucket).await
        }
    };
}

pub(crate) use store_cases;
