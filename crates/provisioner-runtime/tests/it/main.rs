//! The runtime, from outside the crate.

mod logs;
mod shutdown;
mod tokens;
mod words;
