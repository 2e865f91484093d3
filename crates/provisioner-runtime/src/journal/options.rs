//! The place of a journal, and its writer.

use super::object::JournalKind;
use super::text::Entry;
use crate::environment::Environment;
use crate::name::lease_name;

/// Where a journal is and who writes it.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// Where it is stored.
    pub kind: JournalKind,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// What all journals of one controller share: the value of a label, see [Format](super#format).
    pub group: String,
    /// How keys are spread over the journals of the group. Entries of other layouts can be [adopted](super::Adoption).
    pub layout: String,
    /// The cluster, which the journal notes. A journal that notes another one was restored here.
    pub cluster_id: String,
    /// This process. No other may ever have the same name.
    pub holder: String,
    /// Whether entries that were restored with the object are set apart. Tests of a simulation leave it out.
    pub sets_restored_apart: bool,
    /// For whom an entry is, such as a namespace: tenants of a group share its room. Empty for nobody.
    pub tenant_of: fn(&Entry) -> String,
    /// What the jitter of pauses is drawn from.
    pub environment: Environment,
}

/// The name of one shard's journal, for a controller that is called `name`.
pub fn journal_name(name: &str, shard: u32, shards: u32) -> String {
    let part = if shards > 1 { format!("-{shard}-of-{shards}") } else { String::new() };
    lease_name(&format!("{name}-journal{part}"))
}

/// The [layout](JournalOptions::layout) of journals of parts.
pub const PART_LAYOUT: &str = "node";

/// The name of the journal of a process that has a part of its own, such as a node, for a controller that is called
/// `name`. A process writes it as soon as it has started.
pub fn part_journal_name(name: &str, part: &str) -> String {
    lease_name(&format!("{name}-journal-node-{part}"))
}
