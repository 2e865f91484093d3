//! Buckets of `garage-provisioner` on Garage.

mod cases;
mod contract;
mod fixture;
mod rights;
mod settings;
