//! Both sides of the comparison. A type's name is lower case, without underscores, after those of the messages around it; its
//! content is lines such as `secrets = 5 map secret` or `volume = 2 volumecontentsource.volumesource oneof type`.

pub(crate) mod ours;
pub(crate) mod proto;

/// `MountVolume`, `mount_volume` and `MOUNT_VOLUME` alike.
pub(crate) fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}
