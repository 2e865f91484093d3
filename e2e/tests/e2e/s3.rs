//! The provisioner on moto, in us-east-1, where creating a bucket that one already owns succeeds, and in another
//! region.

mod fixture;
mod names;
mod ownership;
mod rights;
