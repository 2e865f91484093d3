//! The entries of a journal, and the division of its space among groups and tenants.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use super::error::JournalError;
use super::format::{self, Content, Entry, Unreadable};
use crate::limiter::fair_share;

/// The size limits of a journal, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    /// Limit for all entries together. Each commit writes them all, and the next one waits for as long as that takes at
    /// `BYTES_PER_SECOND`.
    pub(super) all: usize,
    /// Limit for the first entry of a group, so that other groups cannot keep it out.
    pub(super) with_newcomers: usize,
    /// Limit including restored entries, which take no room from others while the API server accepts the object.
    pub(super) object: usize,
}

/// Limit for one entry with its shared texts except the group's, so that dozens fit whatever they contain.
pub(super) const MAX_ENTRY_BYTES: usize = 16_000;

/// The content of the journal to be stored.
#[derive(Debug)]
pub(super) struct Entries {
    capacity: Capacity,
    all: BTreeMap<String, Entry>,
    shared: HashMap<String, Shared>,
    /// The bytes of each group: of the entries that name the same shared text first.
    groups: HashMap<Arc<str>, usize>,
    /// The bytes of each tenant of a group. The group's own shared text counts for no tenant.
    tenants: HashMap<Owner, usize>,
    tenant_of: fn(&Entry) -> String,
    unreadable: Vec<Unreadable>,
    /// Restored lines. No process acts on them, and they take no room from others.
    restored: Vec<Unreadable>,
    bytes: usize,
}

#[derive(Debug)]
struct Shared {
    text: Arc<str>,
    users: usize,
    /// The owner of the entry that introduced the text; its bytes count there.
    owner: Owner,
}

/// The owner to whom bytes are charged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Owner {
    group: Arc<str>,
    /// Empty if there is no tenant.
    tenant: Arc<str>,
}

/// The amount of room that an entry may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The group's share, which leaves room for others.
    Fair,
    /// All free room.
    All,
}

impl Entries {
    /// Creates the entries of a former holder, regardless of their size.
    pub(super) fn new(content: Content, capacity: Capacity, tenant_of: fn(&Entry) -> String) -> Self {
        let bytes = content.unreadable.iter().map(|Unreadable { line, .. }| line.len() + 1).sum();
        let Content { entries: all, unreadable, restored } = content;
        let (all_by_key, shared) = (BTreeMap::new(), HashMap::new());
        let (groups, tenants) = (HashMap::new(), HashMap::new());
        let mut entries =
            Self { capacity, all: all_by_key, shared, groups, tenants, tenant_of, unreadable, restored, bytes };
        all.into_iter().for_each(|entry| entries.put(entry));
        entries
    }

    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.all.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an entry if it fits. Returns the restored entry that it replaces: a new attempt continues whatever that one
    /// had begun. A replacement needs room only for its growth.
    pub(super) fn try_put(&mut self, entry: Entry, room: Room) -> Result<Vec<Unreadable>, JournalError> {
        let (key, before, bytes) = (entry.key.clone(), self.all.get(&entry.key).cloned(), self.bytes);
        let owner = self.owner(&entry);
        let held = (self.group_bytes(&owner), self.tenant_bytes(&owner));
        let restored = self.take_restored(&key);
        self.put(entry);
        let fits = if before.is_none() && room == Room::Fair {
            let free = self.capacity.all.saturating_sub(bytes);
            let of_group = match held.0 {
                0 => self.bytes <= self.capacity.with_newcomers,
                held => fair_share(held, self.bytes - bytes, free),
            };
            // The tenants of a group share its remaining room by the same rule.
            let of_tenant = held.1 == 0 || {
                let room = free.saturating_mul(4).saturating_sub(held.0) / 5;
                fair_share(held.1, self.tenant_bytes(&owner) - held.1, room)
            };
            // The first entry of a tenant may also use half of the room that is kept for new groups.
            let room = usize::midpoint(self.capacity.all, self.capacity.with_newcomers);
            let is_first = held.1 == 0 && !owner.tenant.is_empty() && self.bytes <= room;
            of_tenant && (of_group || is_first)
        } else {
            self.bytes <= self.capacity.all.max(bytes)
        };
        if fits && (self.restored.is_empty() || self.stored_bytes() <= self.capacity.object) {
            return Ok(restored);
        }
        self.take(&key);
        before.into_iter().for_each(|before| self.put(before));
        self.put_restored(restored);
        Err(JournalError::Full { entries: self.len(), bytes: self.bytes })
    }

    /// Adds an entry. It replaces one with the same key.
    pub(super) fn put(&mut self, mut entry: Entry) {
        self.take(&entry.key);
        let mut owner = Owner { tenant: self.owner(&entry).tenant, ..Owner::default() };
        for (at, (name, text)) in entry.shared.iter_mut().enumerate() {
            // Names are derived from hashes, so two texts may have the same name.
            while self.shared.get(name).is_some_and(|known| known.text != *text) {
                name.push('+');
            }
            if at == 0 {
                owner.group = name.as_str().into();
            }
            match self.shared.get_mut(name) {
                Some(known) => {
                    known.users += 1;
                    *text = known.text.clone();
                }
                None => {
                    let owner = if at == 0 { owner.of_group() } else { owner.clone() };
                    self.grow(&owner, format::shared_text_bytes(name, text));
                    self.shared.insert(name.clone(), Shared { text: text.clone(), users: 1, owner });
                }
            }
        }
        self.grow(&owner, format::entry_bytes(&entry));
        self.all.insert(entry.key.clone(), entry);
    }

    /// Removes an entry; returns true if it existed.
    pub(super) fn take(&mut self, key: &str) -> bool {
        let Some(entry) = self.all.remove(key) else { return false };
        let owner = self.owner(&entry);
        self.shrink(&owner, format::entry_bytes(&entry));
        for (name, text) in &entry.shared {
            let Some(known) = self.shared.get_mut(name) else { continue };
            known.users -= 1;
            if known.users == 0 {
                let owner = known.owner.clone();
                self.shared.remove(name);
                self.shrink(&owner, format::shared_text_bytes(name, text));
            }
        }
        true
    }

    /// Removes unreadable lines that begin with this key; returns true if there were any.
    pub(super) fn take_unreadable(&mut self, key: &str) -> bool {
        let before = self.unreadable.len();
        let bytes = &mut self.bytes;
        self.unreadable.retain(|line| {
            let stays = line.key() != key;
            *bytes -= if stays { 0 } else { line.line.len() + 1 };
            stays
        });
        self.unreadable.len() < before
    }

    pub(super) fn restored(&self) -> usize {
        self.restored.len()
    }

    /// Removes and returns the restored entry with this key.
    pub(super) fn take_restored(&mut self, key: &str) -> Vec<Unreadable> {
        self.restored.extract_if(.., |line| line.key() == key).collect()
    }

    /// Adds restored entries that were taken.
    pub(super) fn put_restored(&mut self, entries: Vec<Unreadable>) {
        self.restored.extend(entries.into_iter().filter(|line| !self.all.contains_key(line.key())));
    }

    /// Turns restored entries with these keys, or all of them for `*`, into regular entries, and returns them.
    pub(super) fn accept(&mut self, keys: &[String]) -> Vec<Entry> {
        let accepted = |line: &Unreadable| keys.iter().any(|key| key == "*" || *key == line.key());
        let entries: Vec<Entry> =
            self.restored.iter().filter(|line| accepted(line)).filter_map(Unreadable::entry).collect();
        for entry in &entries {
            self.take_restored(&entry.key);
            self.put(entry.clone());
        }
        entries
    }

    pub(super) fn data(&self) -> BTreeMap<String, String> {
        format::write(self.all.values(), &self.unreadable, &self.restored)
    }

    fn stored_bytes(&self) -> usize {
        self.data().values().map(String::len).sum()
    }

    fn owner(&self, entry: &Entry) -> Owner {
        let group = entry.shared.first().map_or("", |(name, _)| name).into();
        Owner { group, tenant: (self.tenant_of)(entry).into() }
    }

    fn group_bytes(&self, owner: &Owner) -> usize {
        self.groups.get(&owner.group).copied().unwrap_or_default()
    }

    /// Returns the bytes of a tenant; 0 if it is unknown.
    fn tenant_bytes(&self, owner: &Owner) -> usize {
        self.tenants.get(owner).copied().unwrap_or_default()
    }

    fn grow(&mut self, owner: &Owner, bytes: usize) {
        self.bytes += bytes;
        *self.groups.entry(owner.group.clone()).or_default() += bytes;
        if !owner.tenant.is_empty() {
            *self.tenants.entry(owner.clone()).or_default() += bytes;
        }
    }

    fn shrink(&mut self, owner: &Owner, bytes: usize) {
        self.bytes -= bytes;
        shrink(&mut self.groups, &owner.group, bytes);
        shrink(&mut self.tenants, owner, bytes);
    }
}

impl Owner {
    fn of_group(&self) -> Self {
        Self { group: self.group.clone(), ..Self::default() }
    }
}

fn shrink<K: Eq + Hash>(held: &mut HashMap<K, usize>, owner: &K, bytes: usize) {
    let Some(known) = held.get_mut(owner) else { return };
    *known -= bytes;
    if *known == 0 {
        held.remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::journal::JournalKind;

    fn entries() -> Entries {
        Entries::new(Content::default(), JournalKind::ConfigMap.capacity(), tenant)
    }

    /// Returns the part of the key before the last slash.
    fn tenant(entry: &Entry) -> String {
        entry.key.rsplit_once('/').map(|(tenant, _)| tenant.to_owned()).unwrap_or_default()
    }

    fn entry(key: &str, group: &str, bytes: usize) -> Entry {
        Entry { key: key.into(), text: "x".repeat(bytes), shared: vec![(group.into(), "{}".into())] }
    }

    /// Adds entries of this group until there is no room; returns how many fit.
    fn fill(entries: &mut Entries, group: &str, room: Room) -> usize {
        let fits = |number: &usize| {
            let new = entry(&format!("{group}-{number}"), group, 1_000);
            entries.try_put(new, room).is_ok()
        };
        (0..1_000).take_while(fits).count()
    }

    #[test]
    fn group_leaves_room_for_other_groups() {
        let mut entries = entries();
        let alone = fill(&mut entries, "a", Room::Fair);
        assert!((340..=360).contains(&alone), "{alone}");
        assert!(fill(&mut entries, "b", Room::Fair) > 60);
        assert!(fill(&mut entries, "c", Room::Fair) > 10);
        // Replacements and adopted entries may use all free room, not only the group's share.
        entries.try_put(entry("a-0", "a", 1_500), Room::Fair).unwrap();
        assert!(fill(&mut entries, "d", Room::All) > 1);
        assert!(matches!(entries.try_put(entry("a-0", "a", 9_000), Room::Fair), Err(JournalError::Full { .. })));
        assert_eq!(entries.get("a-0"), Some(&entry("a-0", "a", 1_500)));
        assert!(entries.bytes() <= JournalKind::ConfigMap.capacity().all);
    }

    #[test]
    fn tenant_leaves_room_for_other_tenants_of_its_group() {
        let mut entries = entries();
        let mut fill = |tenant: &str, group: &str| {
            let fits = |number: &usize| {
                let new = entry(&format!("{tenant}/{group}-{number}"), group, 1_000);
                entries.try_put(new, Room::Fair).is_ok()
            };
            (0..1_000).take_while(fits).count()
        };
        let alone = fill("x", "a");
        assert!((270..=290).contains(&alone), "{alone}");
        let counts = [fill("y", "a"), fill("z", "a"), fill("x", "b")];
        assert!(counts[0] > 40 && counts[1] > 8 && counts[2] > 50, "{counts:?}");
        let more = ["s", "t", "u", "v", "w"].map(|tenant| fill(tenant, "a"));
        assert!(more.iter().all(|count| *count > 0), "{more:?}");
        let _ = (0..1_000).map(|tenant: u32| fill(&tenant.to_string(), "a")).sum::<usize>();
        assert!(fill("x", "c") > 0, "a new group fits");
    }

    #[test]
    fn overfull_journal_lets_entries_shrink() {
        let large = (0..9).map(|key| entry(&key.to_string(), "a", 90_000)).collect();
        let mut entries =
            Entries::new(Content { entries: large, ..Content::default() }, JournalKind::ConfigMap.capacity(), tenant);
        entries.try_put(entry("1", "a", 80_000), Room::Fair).unwrap();
        entries.try_put(entry("1", "a", 80_001), Room::Fair).unwrap_err();
        entries.try_put(entry("new", "b", 1), Room::All).unwrap_err();
    }

    proptest! {
        #[test]
        fn counted_bytes_equal_written_bytes(
            steps in prop::collection::vec(("[xy]?/[0-4]", 0..3_usize, prop::collection::vec((0..3_u8, 0..3_usize), 0..3)), 0..60),
        ) {
            let mut entries = entries();
            for (key, size, shared) in steps {
                let shared = shared.iter().map(|(name, text)| (name.to_string(), "y".repeat(*text).into())).collect();
                match size {
                    0 => drop(entries.take(&key)),
                    size => entries.put(Entry { key, text: "x".repeat(size), shared }),
                }
                let data = entries.data();
                let written = [format::ENTRIES, format::SHARED].iter().filter_map(|part| data.get(*part)).map(String::len);
                prop_assert_eq!(entries.bytes(), written.sum::<usize>());
                prop_assert_eq!(entries.groups.values().sum::<usize>(), entries.bytes());
                let of_tenants = |entry: &Entry| !tenant(entry).is_empty();
                let lines = entries.all.values().filter(|entry| of_tenants(entry)).map(format::entry_bytes).sum::<usize>();
                prop_assert!((lines..=entries.bytes()).contains(&entries.tenants.values().sum::<usize>()));
                let read = Content::read(&data).entries;
                prop_assert_eq!(read, entries.all.values().cloned().collect::<Vec<_>>());
            }
        }
    }
}
