//! The Container Object Storage Interface, in two versions, which a server can offer on one socket.

mod protocol;

pub use self::protocol::Protocol;

/// The version `v1alpha1`, as in release 0.2.2.
pub mod v1alpha1 {
    use std::sync::Arc;

    use crate::Server;

    mod generated {
        // The specification documents the fields.
        #![allow(missing_docs)]

        include!("generated/cosi.v1alpha1.rs");
    }

    pub use self::generated::*;

    impl Server {
        /// Adds a COSI driver in the version `v1alpha1` to the server.
        pub fn cosi_v1alpha1<D: Identity + Provisioner + 'static>(mut self, driver: D) -> Self {
            let driver = Arc::new(driver);
            serve_identity(&mut self, driver.clone());
            serve_provisioner(&mut self, driver);
            self
        }
    }
}

/// The version `v1alpha2`, as it was in March 2026.
pub mod v1alpha2 {
    use std::fmt::{self, Debug};
    use std::sync::Arc;

    use crate::Server;

    mod generated {
        // The specification documents the fields.
        #![allow(missing_docs)]

        include!("generated/sigs.k8s.io.cosi.v1alpha2.rs");
    }

    pub use self::generated::*;

    impl Server {
        /// Adds a COSI driver in the version `v1alpha2` to the server.
        pub fn cosi_v1alpha2<D: Identity + Provisioner + 'static>(mut self, driver: D) -> Self {
            let driver = Arc::new(driver);
            serve_identity(&mut self, driver.clone());
            serve_provisioner(&mut self, driver);
            self
        }
    }

    /// Implements a `Debug` that shows nothing: the specification marks no field as secret, although some contain
    /// credentials.
    macro_rules! hidden {
        ($($name:ident)*) => {
            $(
                impl Debug for $name {
                    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("***stripped***")
                    }
                }
            )*
        };
    }

    hidden! { S3CredentialInfo AzureCredentialInfo GcsCredentialInfo }

    /// Shows only the id.
    impl Debug for driver_grant_bucket_access_response::BucketInfo {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("BucketInfo").field("bucket_id", &self.bucket_id).finish_non_exhaustive()
        }
    }
}
