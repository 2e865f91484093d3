//! Pages whose Rust blocks `cargo test --doc -p guide` compiles and runs, including the project's README.
//!
//! The blocks in `write/first.md` are the template's files, which a test of `cargo xtask new` compares and builds.

#[cfg(doctest)]
mod pages {
    macro_rules! pages {
        ($($name:ident: $file:literal)*) => {$(
            #[doc = include_str!(concat!("../pages/", $file))]
            pub struct $name;
        )*};
    }

    pages! {
        Verdicts: "write/verdicts.md"
        Idempotence: "write/idempotence.md"
        Parameters: "write/parameters.md"
        Secrets: "write/secrets.md"
        Topology: "write/topology.md"
        Tests: "write/tests.md"
        Buckets: "write/buckets.md"
        Commands: "write/flags.md"
    }

    #[doc = include_str!("../../../README.md")]
    pub struct FrontPage;
}
