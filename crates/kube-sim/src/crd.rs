//! CustomResourceDefinitions: what they define, and what holds for objects of what they define.
//!
//! Served are all versions with `served: true`; between versions only `apiVersion` changes (conversion strategy `None`).
//! Rules in CEL (`x-kubernetes-validations`) are not evaluated, and `x-kubernetes-list-type` is not enforced.

pub(crate) mod definition;
mod schema;

pub(crate) use definition::Definition;
