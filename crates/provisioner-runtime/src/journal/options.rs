//! The location of a journal, and its writer.

use super::format::Entry;
use super::object::JournalKind;
use crate::environment::Environment;
use crate::name::lease_name;

/// The location of a journal, and its writer.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// The kind of object it is stored in.
    pub kind: JournalKind,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The name shared by all journals of one controller: the value of a label, see [Format](super#format).
    pub group: String,
    /// Other names of the controller, for administrators.
    pub aliases: Vec<String>,
    /// The distribution of keys over the journals of the group. Entries of other layouts can be
    /// [adopted](super::Adoption).
    pub layout: String,
    /// The cluster, which the journal records. A journal that records another cluster was restored here.
    pub cluster_id: String,
    /// The unique name of this process. No other process may ever use the same name.
    pub holder: String,
    /// Sets entries that were restored with the object apart. Simulation tests disable it.
    pub sets_restored_apart: bool,
    /// Returns the tenant of an entry, such as a namespace: tenants of a group share its room. Empty for no tenant.
    pub tenant_of: fn(&Entry) -> String,
    /// The source of the jitter in pauses.
    pub environment: Environment,
}

/// Returns the name of one shard's journal, for a controller called `name`.
pub fn journal_name(name: &str, shard: u32, shards: u32) -> String {
    let part = if shards > 1 { format!("-{shard}-of-{shards}") } else { String::new() };
    lease_name(&format!("{name}-journal{part}"))
}

/// The [layout](JournalOptions::layout) of journals of parts.
pub const PART_LAYOUT: &str = "node";

/// Returns the name of the journal of a process with its own part, such as a node, for a controller called `name`. The
/// process writes this journal as soon as it has started.
pub fn part_journal_name(name: &str, part: &str) -> String {
    lease_name(&format!("{name}-journal-node-{part}"))
}
