//! The kubectl plugin.

mod commands;
mod situations;
