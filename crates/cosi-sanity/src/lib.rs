#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

mod api;
mod bed;
mod check;
mod checks;
mod options;
mod report;
mod run;

pub use self::api::Version;
pub use self::check::{Check, all};
pub use self::options::{Options, Parameters};
pub use self::report::{CheckRun, Outcome, Report};
pub use self::run::run;
pub use driver_rpc::cosi::Protocol;
