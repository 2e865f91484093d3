//! Group IDs for volumes that are shared by permission: each volume of a StorageClass gets its own gid.
//!
//! A provisioner that assigns gids does three things with the gid from [`GidAllocator::allocate`]:
//! - it sets the group of the backend directory (`chgrp`, mode `2770` or similar), on every attempt;
//! - it writes the number, in decimal, into the annotation [`GID_ANNOTATION`] of the PersistentVolume. The kubelet adds
//!   it to the supplemental groups of every container that mounts the volume, as if the pod had it in
//!   `securityContext.supplementalGroups`; a pod that mounts the backend by other means must list it there itself
//!   (<https://kubernetes.io/docs/tasks/configure-pod-container/configure-persistent-volume-storage/#access-control>);
//! - when the volume is deleted, it calls [`GidAllocator::release`].
//!
//! Only the annotation is stored. After a start, [`GidAllocator::restore`] is called for every volume of the
//! provisioner before the first `allocate`. An attempt that is interrupted before its volume is saved leaves no
//! gid behind, so the next one may get another gid.
//!
//! Classes are independent of each other: two classes with overlapping ranges can assign the same gids.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

mod interval;

#[cfg(test)]
mod tests;

use crate::parameters::quoted;
pub use interval::{AllocatorError, IntervalAllocator};

/// The annotation of a PersistentVolume that names its gid, in decimal.
pub const GID_ANNOTATION: &str = "pv.beta.kubernetes.io/gid";

/// Records which volume of which StorageClass has which gid. Can be used from several threads; it never blocks on I/O.
#[derive(Debug, Default)]
pub struct GidAllocator {
    classes: Mutex<HashMap<String, ClassGids>>,
}

impl GidAllocator {
    /// Creates an allocator without any gid in use.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the gid of an existing PersistentVolume `volume`. It replaces any other gid of the volume.
    ///
    /// # Errors
    ///
    /// [`GidError::Shared`] if another volume of the class already has the same gid. The gid is then recorded for both,
    /// and is free again once both are released; the error only serves to report it.
    /// [`GidError::OutOfRange`] if no allocator can have assigned this gid; it is not recorded.
    pub fn restore(&self, class: &str, volume: &str, gid: u64) -> Result<(), GidError> {
        let out_of_range = || GidError::OutOfRange { name: GID_ANNOTATION.into(), value: gid.to_string() };
        let gid = u32::try_from(gid).ok().filter(|gid| u64::from(*gid) <= HIGHEST).ok_or_else(out_of_range)?;
        let mut classes = self.classes();
        let table = classes.entry(class.into()).or_default();
        match table.volumes.insert(volume.into(), gid) {
            Some(before) if before == gid => return Ok(()),
            Some(before) => table.drop_holder(before, volume),
            None => (),
        }
        table.add_holder(gid, volume);
        match table.holders[&gid].first() {
            Some(other) if other != volume => Err(GidError::Shared { gid, volume: volume.into(), other: other.into() }),
            _ => Ok(()),
        }
    }

    /// Returns the gid of `volume`: the one it already has, whatever the range is now, or else the lowest free one in
    /// `range`.
    ///
    /// A repeated attempt to provision the same volume therefore gets the same gid.
    ///
    /// # Errors
    ///
    /// [`GidError::Full`] if every gid of the range is in use.
    pub fn allocate(&self, class: &str, volume: &str, range: GidRange) -> Result<u32, GidError> {
        let mut classes = self.classes();
        if let Some(gid) = classes.get(class).and_then(|table| table.volumes.get(volume)) {
            return Ok(*gid);
        }
        let table = classes.entry(class.into()).or_default();
        let full = |_| GidError::Full { class: class.into(), range };
        // A gid is at most `HIGHEST`, which fits.
        let gid = table.numbers.lowest_free(range.min, range.max).map_err(full)? as u32;
        table.volumes.insert(volume.into(), gid);
        table.add_holder(gid, volume);
        Ok(gid)
    }

    /// Frees the gid of `volume` and returns it; `None` if it had none. The class need not exist any longer.
    pub fn release(&self, class: &str, volume: &str) -> Option<u32> {
        let mut classes = self.classes();
        let table = classes.get_mut(class)?;
        let gid = table.volumes.remove(volume)?;
        table.drop_holder(gid, volume);
        if table.volumes.is_empty() {
            classes.remove(class);
        }
        Some(gid)
    }

    fn classes(&self) -> MutexGuard<'_, HashMap<String, ClassGids>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The gids that a StorageClass allows, including both ends.
///
/// A provisioner with typed parameters defines two fields of type `Option<u64>`, `gidMin` and `gidMax`, and calls
/// [`GidRange::new`]; one with untyped parameters calls [`GidRange::from_parameters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidRange {
    min: u64,
    max: u64,
}

impl GidRange {
    /// Creates the range from `min`, or 2000, to `max`, or 2147483647.
    ///
    /// # Errors
    ///
    /// [`GidError::OutOfRange`] if one of them is not between 2000 and 2147483647, [`GidError::InvalidRange`] if `min`
    /// is above `max`.
    pub fn new(min: Option<u64>, max: Option<u64>) -> Result<Self, GidError> {
        for (name, gid) in [(MIN_PARAMETER, min), (MAX_PARAMETER, max)] {
            match gid {
                Some(gid) if !(LOWEST..=HIGHEST).contains(&gid) => {
                    return Err(GidError::OutOfRange { name: name.into(), value: gid.to_string() });
                }
                _ => (),
            }
        }
        let (min, max) = (min.unwrap_or(LOWEST), max.unwrap_or(HIGHEST));
        if min <= max { Ok(Self { min, max }) } else { Err(GidError::InvalidRange { min, max }) }
    }

    /// Reads the range from the parameters `gidMin` and `gidMax` of a StorageClass, in any mixture of upper and lower
    /// case.
    ///
    /// # Errors
    ///
    /// The errors of [`GidRange::new`], [`GidError::OutOfRange`] also if a value is not a decimal number, and
    /// [`GidError::Repeated`] if one parameter is given in two spellings.
    pub fn from_parameters(parameters: &BTreeMap<String, String>) -> Result<Self, GidError> {
        let limit = |name: &str| {
            let mut spellings = parameters.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
            let Some((key, value)) = spellings.next() else { return Ok(None) };
            if let Some((other, _)) = spellings.next() {
                return Err(GidError::Repeated { name: key.clone(), other: other.clone() });
            }
            let is_decimal = value.bytes().all(|byte| byte.is_ascii_digit());
            match value.parse() {
                Ok(gid) if is_decimal && (LOWEST..=HIGHEST).contains(&gid) => Ok(Some(gid)),
                _ => Err(GidError::OutOfRange { name: key.clone(), value: value.clone() }),
            }
        };
        Self::new(limit(MIN_PARAMETER)?, limit(MAX_PARAMETER)?)
    }
}

impl Default for GidRange {
    /// Returns the range from 2000 to 2147483647.
    fn default() -> Self {
        Self { min: LOWEST, max: HIGHEST }
    }
}

/// The reason why a gid or a range of gids cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GidError {
    /// Every gid of the range belongs to a volume.
    #[error("StorageClass {} has no free gid between {} and {}", quoted(class), range.min, range.max)]
    Full {
        /// Name of the StorageClass.
        class: String,
        /// Its range.
        range: GidRange,
    },
    /// The range ends before it begins.
    #[error("parameter \"gidMin\" is {min}, which is above \"gidMax\", {max}")]
    InvalidRange {
        /// The configured or default lower end.
        min: u64,
        /// The configured or default upper end.
        max: u64,
    },
    /// The number is not a gid that an allocator may assign.
    #[error("{} is {}, which is not a decimal number between {} and {HIGHEST}", quoted(name), quoted(value), if name == GID_ANNOTATION { 0 } else { LOWEST })]
    OutOfRange {
        /// The parameter or annotation.
        name: String,
        /// Its value.
        value: String,
    },
    /// A parameter is given in two spellings.
    #[error("{} and {} are the same parameter", quoted(name), quoted(other))]
    Repeated {
        /// One spelling.
        name: String,
        /// The other one.
        other: String,
    },
    /// Two existing volumes have the same gid.
    #[error("PersistentVolume {} has gid {gid}, which {} already has", quoted(volume), quoted(other))]
    Shared {
        /// The gid.
        gid: u32,
        /// The volume that was restored last.
        volume: String,
        /// The volume that was restored earlier.
        other: String,
    },
}

/// The gids of one StorageClass.
#[derive(Debug)]
struct ClassGids {
    volumes: HashMap<String, u32>,
    /// More than one volume only if volumes already shared a gid before the start.
    holders: HashMap<u32, Vec<String>>,
    /// Covers all gids, so that a change of the class's range does not lose any.
    numbers: IntervalAllocator,
}

impl ClassGids {
    fn add_holder(&mut self, gid: u32, volume: &str) {
        // Fails for a shared gid, which is already marked.
        let _ = self.numbers.allocate(gid.into());
        self.holders.entry(gid).or_default().push(volume.into());
    }

    fn drop_holder(&mut self, gid: u32, volume: &str) {
        let Some(holders) = self.holders.get_mut(&gid) else { return };
        holders.retain(|holder| holder != volume);
        if holders.is_empty() {
            self.holders.remove(&gid);
            self.numbers.release(gid.into());
        }
    }
}

impl Default for ClassGids {
    fn default() -> Self {
        Self { volumes: HashMap::new(), holders: HashMap::new(), numbers: IntervalAllocator::over(0, HIGHEST) }
    }
}

const MIN_PARAMETER: &str = "gidMin";

const MAX_PARAMETER: &str = "gidMax";

/// Lower gids belong to the system and ordinary users.
const LOWEST: u64 = 2000;

/// The largest number that every component understands, since some read a gid as a signed 32-bit number.
const HIGHEST: u64 = i32::MAX as u64;
