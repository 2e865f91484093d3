//! The checks of `cosi-sanity`, as a library and as a program.

mod bed;
mod program;
mod sanity;
