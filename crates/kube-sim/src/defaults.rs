//! (being written)
mod decode;
pub(crate) mod schema;
mod time;
pub use decode::{FieldValidation, decode};
