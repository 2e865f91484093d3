//! Buckets on Garage, made by `garage-provisioner`.

mod cases;
mod contract;
mod fixture;
mod rights;
mod settings;
