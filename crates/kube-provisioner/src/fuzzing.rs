//! The way of an object from the wire into the tables and to a decision, for the fuzz targets.

/// Takes bytes in as a claim, as a volume and as a class, and decides about what came of them.
pub fn take_in(bytes: &[u8]) {
    crate::controller::volume::take_in(bytes);
}
