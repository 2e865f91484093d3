//! CustomResourceDefinitions and their schemas.
//!
//! All versions with `served: true` are served. Conversion changes only `apiVersion` (strategy `None`). CEL rules
//! (`x-kubernetes-validations`) are not evaluated, and `x-kubernetes-list-type` is not enforced.

pub(crate) mod definition;
mod schema;

pub(crate) use definition::Definition;
