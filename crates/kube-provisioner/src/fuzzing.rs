//! Takes objects from the wire through the tables to a decision, for the fuzz targets.

/// Reads bytes as a claim, as a volume and as a class, and decides about the results.
pub fn take_in(bytes: &[u8]) {
    crate::controller::volume::take_in(bytes);
}
