//! The format of a journal; the documentation of [`journal`](super) describes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::object::JournalObject;
use crate::name::label_value;

/// The format that is written. Journals in any other format are left alone.
pub(super) const VERSION: &str = "1";
pub(super) const VERSION_KEY: &str = "version";
pub(super) const ENTRIES: &str = "entries";
pub(super) const SHARED: &str = "shared";
/// The annotation that names the writer, for `kubectl` and for the former holder.
pub(super) const HOLDER: &str = "kube-provisioner/holder";
/// The annotation that describes the distribution of keys over the journals of the group.
pub(super) const LAYOUT: &str = "kube-provisioner/layout";
/// The annotation with other names of the controller, separated by commas, for administrators.
pub(super) const ALIASES: &str = "kube-provisioner/additional-names";
/// The label on all journals.
pub(super) const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "journal");
/// The label that names a journal's group.
pub(super) const INSTANCE: &str = "app.kubernetes.io/instance";
/// The annotation with the keys of entries to be dropped, separated by commas.
pub(super) const DROP: &str = "kube-provisioner/drop";
/// The annotation with the uid of the object that the entries were written for.
pub(super) const JOURNAL_UID: &str = "kube-provisioner/journal-uid";
/// An annotation that differs in each write after an unanswered one. A write of the same content has no effect, so
/// without it the unanswered write would stay valid.
pub(super) const UNANSWERED: &str = "kube-provisioner/journal-unanswered";
/// The annotation with the cluster of the journal.
pub(super) const CLUSTER_ID: &str = "kube-provisioner/cluster-id";
/// The annotation with the keys of restored entries to finish, separated by commas; `*` stands for all.
pub(super) const ACCEPT: &str = "kube-provisioner/accept";
/// Lines of entries that were restored with the object.
pub(super) const RESTORED: &str = "restored";
/// Stands for an empty list of shared texts.
const NO_SHARED_TEXTS: &str = "-";
/// Separator between the names of shared texts.
const NAME_SEPARATOR: char = ',';

/// An attempt that has begun. All texts are single lines; see [Format](super#format).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key of the attempt; contains no spaces.
    pub key: String,
    /// The information needed to finish the attempt.
    pub text: String,
    /// Texts that many entries share, each stored once under a name without spaces and commas.
    pub shared: Vec<(String, Arc<str>)>,
}

/// A line that is kept unchanged, with the shared texts that it names: it cannot be read, or no process may act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) line: String,
    shared: Vec<(String, Arc<str>)>,
}

impl Unreadable {
    pub(super) fn new(line: &str, shared: &BTreeMap<&str, Arc<str>>) -> Self {
        let names = line.split(' ').nth(1).unwrap_or_default().split(NAME_SEPARATOR);
        let found = names.filter_map(|name| Some((name.to_owned(), shared.get(name)?.clone())));
        Self { line: line.to_owned(), shared: found.collect() }
    }

    fn of(entry: &Entry) -> Self {
        let mut line = String::new();
        write_line(&mut line, entry);
        Self { line, shared: entry.shared.clone() }
    }

    /// Parses the line as an entry, if possible.
    pub(super) fn entry(&self) -> Option<Entry> {
        let shared = self.shared.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        read_entry(&self.line, &shared)
    }

    /// Returns the first word, which serves as the key.
    pub(super) fn key(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }
}

/// The entire contents of a journal.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) entries: Vec<Entry>,
    pub(super) unreadable: Vec<Unreadable>,
    /// Entries that were written for another object. Their attempts may have ended since, with any result.
    pub(super) restored: Vec<Unreadable>,
}

impl Content {
    pub(super) fn read(data: &BTreeMap<String, String>) -> Self {
        let lines = |name: &str| data.get(name).map(String::as_str).unwrap_or_default().lines();
        let shared: BTreeMap<&str, Arc<str>> =
            lines(SHARED).filter_map(|line| line.split_once(' ')).map(|(name, text)| (name, text.into())).collect();
        let kept = |name: &str| lines(name).filter(|line| !line.trim().is_empty());
        let restored = kept(RESTORED).map(|line| Unreadable::new(line, &shared)).collect();
        let mut content = Self { restored, ..Self::default() };
        for line in kept(ENTRIES) {
            match read_entry(line, &shared) {
                Some(entry) => content.entries.push(entry),
                None => content.unreadable.push(Unreadable::new(line, &shared)),
            }
        }
        content
    }

    /// Reads the stored content of a journal. Entries restored with the object, in this cluster or another, are set
    /// apart: their writer recorded the uid of another object.
    pub(super) fn of(journal: &JournalObject, cluster_id: &str) -> Self {
        let mut content = Self::read(&journal.data());
        if is_copy(journal, cluster_id) {
            let entries = std::mem::take(&mut content.entries);
            content.restored.extend(entries.iter().map(Unreadable::of));
            content.restored.append(&mut content.unreadable);
        }
        content
    }

    /// Turns restored entries with these keys, or all of them for `*`, into regular entries.
    pub(super) fn accept(&mut self, keys: &[String]) {
        let accepted = |line: &mut Unreadable| keys.iter().any(|key| key == "*" || *key == line.key());
        let lines: Vec<Unreadable> = self.restored.extract_if(.., accepted).collect();
        for line in lines {
            match line.entry() {
                Some(entry) => self.entries.push(entry),
                None => self.unreadable.push(line),
            }
        }
    }

    /// Removes the entries and other lines with these keys; returns the keys that were found.
    pub(super) fn drop_keys(&mut self, keys: Vec<String>) -> Vec<String> {
        let mut found = keys;
        let has = |line: &Unreadable, key: &String| line.key() == key;
        found.retain(|key| {
            let mut lines = self.unreadable.iter().chain(&self.restored);
            self.entries.iter().any(|entry| entry.key == *key) || lines.any(|line| has(line, key))
        });
        self.entries.retain(|entry| !found.contains(&entry.key));
        for lines in [&mut self.unreadable, &mut self.restored] {
            lines.retain(|line| found.iter().all(|key| !has(line, key)));
        }
        found
    }
}

/// Returns true if the object is a copy of another one. A journal of an earlier version does not record its uid.
pub(super) fn is_copy(journal: &JournalObject, cluster_id: &str) -> bool {
    let other = |name: &str, ours: Option<&str>| {
        journal.annotations().get(name).is_some_and(|noted| ours.is_some_and(|ours| noted != ours))
    };
    other(JOURNAL_UID, journal.metadata.uid.as_deref())
        || other(CLUSTER_ID, Some(cluster_id).filter(|id| !id.is_empty()))
}

fn read_entry(line: &str, shared: &BTreeMap<&str, Arc<str>>) -> Option<Entry> {
    let (key, rest) = line.split_once(' ')?;
    let (names, text) = rest.split_once(' ')?;
    let find = |name: &str| Some((name.to_owned(), shared.get(name)?.clone()));
    let shared = match names {
        NO_SHARED_TEXTS => Vec::new(),
        names => names.split(NAME_SEPARATOR).map(find).collect::<Option<_>>()?,
    };
    Some(Entry { key: key.to_owned(), text: text.to_owned(), shared })
}

/// Returns the parts of the journal. Shared texts that no line names are left out.
pub(super) fn write<'a>(
    entries: impl Iterator<Item = &'a Entry>,
    unreadable: &[Unreadable],
    restored: &[Unreadable],
) -> BTreeMap<String, String> {
    let (mut lines, mut shared) = (String::new(), BTreeMap::new());
    for entry in entries {
        write_line(&mut lines, entry);
        lines.push('\n');
        shared.extend(entry.shared.iter().map(|(name, text)| (name, text)));
    }
    let mut others = String::new();
    for (lines, kept) in [(&mut lines, unreadable), (&mut others, restored)] {
        for Unreadable { line, shared: with } in kept {
            lines.extend([line.as_str(), "\n"]);
            shared.extend(with.iter().map(|(name, text)| (name, text)));
        }
    }
    let shared: String = shared.into_iter().flat_map(|(name, text)| [name, " ", text, "\n"]).collect();
    let data =
        [(ENTRIES, lines), (RESTORED, others), (SHARED, shared)].into_iter().filter(|(_, text)| !text.is_empty());
    let version = (VERSION_KEY, VERSION.to_owned());
    data.chain([version]).map(|(name, text)| (name.to_owned(), text)).collect()
}

/// Writes the line of an entry without the line break.
fn write_line(lines: &mut String, Entry { key, text, shared }: &Entry) {
    lines.extend([key.as_str(), " "]);
    for (at, (name, _)) in shared.iter().enumerate() {
        lines.extend((at > 0).then_some(NAME_SEPARATOR));
        lines.push_str(name);
    }
    lines.extend([if shared.is_empty() { NO_SHARED_TEXTS } else { "" }, " ", text]);
}

/// Returns the room that an entry takes, without its shared texts.
pub(super) fn entry_bytes(entry: &Entry) -> usize {
    let names: usize = entry.shared.iter().map(|(name, _)| name.len() + 1).sum();
    entry.key.len() + names.max(NO_SHARED_TEXTS.len() + 1) + entry.text.len() + 2
}

/// Returns the room that a shared text takes.
pub(super) fn shared_text_bytes(name: &str, text: &str) -> usize {
    name.len() + text.len() + 2
}

/// Returns the labels of all journals of one group.
pub(super) fn labels(group: &str) -> BTreeMap<String, String> {
    let (name, value) = COMPONENT;
    let labels = [(name, value.to_owned()), (INSTANCE, label_value(group))];
    labels.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns the keys of the entries to drop, or `None` if there is no annotation to remove.
pub(super) fn drop_requests(journal: &impl ResourceExt) -> Option<Vec<String>> {
    keys_in(journal, DROP)
}

/// Returns the keys of the restored entries to finish.
pub(super) fn accept_requests(journal: &impl ResourceExt) -> Option<Vec<String>> {
    keys_in(journal, ACCEPT)
}

fn keys_in(journal: &impl ResourceExt, annotation: &str) -> Option<Vec<String>> {
    let keys = journal.annotations().get(annotation)?.split(',').map(str::trim);
    Some(keys.filter(|key| !key.is_empty()).map(str::to_owned).collect())
}
