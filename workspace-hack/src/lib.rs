//! Features of third-party crates: `Cargo.toml` explains them.
