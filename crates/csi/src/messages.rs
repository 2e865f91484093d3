//! The messages, named as in the specification, which also says what each field means. The parts of a message are in a module of its name.
//!
//! Field numbers are written by hand; `tests/it/specification.rs` compares all of them with `csi.proto`.

// The meaning of a field is the specification's to say.
#![allow(missing_docs)]

/// A message of prost. With the feature `serde` it is one of serde too, with the names of JSON and without fields that are empty.
macro_rules! message {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$attribute:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "camelCase", default)
        )]
        pub struct $name {
            $(
                $(#[$attribute])*
                #[cfg_attr(feature = "serde", serde(skip_serializing_if = "crate::recording::is_empty"))]
                pub $field: $type,
            )*
        }
    };
}

mod controller;
mod identity;
mod node;
mod publish;
mod snapshot;
mod volume;

pub use self::controller::*;
pub use self::identity::*;
pub use self::node::*;
pub use self::publish::*;
pub use self::snapshot::*;
pub use self::volume::*;
