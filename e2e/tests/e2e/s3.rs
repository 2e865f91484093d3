//! What the provisioner does on moto, in us-east-1, where making one's own bucket again succeeds, and elsewhere.

mod fixture;
mod names;
mod ownership;
mod rights;
