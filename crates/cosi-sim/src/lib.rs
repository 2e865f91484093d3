#![doc = include_str!("../README.md")]
//!
//! ```
//! use driver_rpc::Code;
//! use driver_rpc::cosi::v1alpha2::Provisioner;
//! use driver_rpc::cosi::v1alpha2::DriverCreateBucketRequest;
//! use cosi_sim::{Driver, Method, Settings, Step};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let driver = Driver::new(Settings::default()).unwrap();
//! driver.script(Method::CreateBucket, [Step::Refuse(Code::Unavailable), Step::LoseAnswer]);
//!
//! let create = || driver.driver_create_bucket(DriverCreateBucketRequest { name: "bc-1".into(), ..Default::default() });
//! assert_eq!(create().await.unwrap_err().code(), Code::Unavailable);
//! assert!(driver.buckets().is_empty());
//! create().await.unwrap_err();
//! let id = create().await.unwrap().bucket_id;
//! assert_eq!(driver.buckets(), [id]);
//! # }
//! ```
#![deny(missing_docs)]

mod driver;
mod fault;
mod model;
mod settings;
mod v1alpha1;
mod v1alpha2;

pub use self::driver::{Driver, Method, Step};
pub use self::fault::Fault;
pub use self::settings::Settings;
pub use driver_rpc::cosi::Protocol;
