//! The parts that the volume and bucket controllers share.

pub(crate) mod calls;
pub(crate) mod checksum;
pub(crate) mod class_parameters;
pub(crate) mod cluster;
#[cfg(test)]
pub(crate) mod event_table;
pub(crate) mod events;
pub(crate) mod index;
pub(crate) mod limits;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod read_class;
pub(crate) mod requests;
pub(crate) mod safeguards;
pub(crate) mod secret_names;
pub(crate) mod secret_reading;
pub(crate) mod texts;
pub(crate) mod watched;
pub(crate) mod writers;
