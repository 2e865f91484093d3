//! Volumes that are directories below one root directory, for provisioners of local directories and network shares.
//!
//! Everything is opened relative to a handle of the root, one component at a time, so that neither `..` nor a symbolic
//! link leads out of it. Next to the volumes, the directory `.kube-provisioner` holds data that tenants must not reach:
//!
//! | below `.kube-provisioner/` | |
//! |---|---|
//! | `root` | the root's marker: its id. If it is missing, another disk is mounted, or none |
//! | `volumes/PATH` | the mark of the volume at `PATH`: its owner. The provisioner never touches a directory without a mark |
//! | `projects/ID` | the project id of a volume whose size is enforced |
//! | `deleting/VOLUME/` | a volume being removed: its `record` and its `data` |
//! | `trash/VOLUME/` | a deleted volume whose data is kept for some time |
//! | `restoring/VOLUME/` | a volume being restored from the trash |
//! | `notes/NAME` | facts that the provisioner stores about the root, such as the node that it was on |
//! | `locks/NUMBER` | locks that keep two processes from working on one path |
//! | `tmp/` | files that are being written |

#![deny(missing_docs)]

mod capacity;
mod clock;
pub mod commands;
mod deletion;
mod entry;
mod error;
mod files;
#[cfg(feature = "hostile")]
pub mod hostile;
mod label;
mod lock;
mod mark;
mod names;
mod open_directory;
mod opening;
pub mod parameters;
mod parents;
mod path;
mod pattern;
mod remove;
mod root;
mod size;
mod state;
mod survey;
mod sync;
#[cfg(test)]
mod tests;
mod trash;
mod upkeep;
mod usage;
mod user_text;
mod volumes;
mod worker;

pub use self::capacity::{Measured, Reserve, VolumeUsage};
pub use self::deletion::{
    Annotations, Deletion, Size, has_retain_policy, owner_in_this_cluster, owner_of, path_and_owner,
};
pub use self::entry::Discarded;
pub use self::error::{DirectoryError, Holder};
pub use self::label::SeLinuxLabel;
pub use self::mark::{Claim, Mark, Owner};
pub use self::opening::{NotUsable, Opening};
pub use self::path::VolumePath;
pub use self::pattern::{Names, PathPattern};
pub use self::root::Root;
pub use self::survey::{FoundMark, Survey};
pub use self::trash::TrashLimits;
pub use self::user_text::CallError;
pub use self::volumes::Permissions;
pub use self::worker::{NotCreated, Worker};
