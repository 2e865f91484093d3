//! The pages whose Rust blocks are compiled and run by `cargo test --doc -p guide`, the project's README among them.
//!
//! The blocks of `write/first.md` are the template's files, which a test of `cargo xtask new` builds.

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
