//! Without a build script, cargo ignores `[build-dependencies]`.

fn main() {}
