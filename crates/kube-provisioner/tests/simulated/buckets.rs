//! The controller of buckets on a simulated API server, with a store in memory. Test names begin with the rows of
//! `docs/buckets.md` that they prove.

mod conformance;
mod deletion;
mod delivery;
mod field;
mod provisioning;
mod rotation;
mod secrets;
mod stand;
mod store;
