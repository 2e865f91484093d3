//! Tests of `cosi-sanity`, as a library and as a binary.

mod bed;
mod program;
mod sanity;
