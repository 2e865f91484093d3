//! Names that a removal has read but not removed yet, within a budget shared by all removals of the process.

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The budget for the names of all removals together.
static SHARED: Budget = Budget::new(8 << 20);

/// Minimum for every directory, so that a removal that gets no share of the budget still makes progress.
const MIN_CAPACITY: usize = 4 << 10;
/// Maximum for a directory.
const MAX_CAPACITY: usize = 512 << 10;

/// A budget of bytes that can be taken and returned.
#[derive(Debug)]
pub(crate) struct Budget(AtomicUsize);

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self(AtomicUsize::new(bytes))
    }

    pub(crate) fn shared() -> &'static Self {
        &SHARED
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn try_reserve(&self, bytes: usize) -> bool {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(bytes));
        taken.is_ok()
    }

    fn release(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Names in one block of memory, each with its NUL.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    bytes: Vec<u8>,
    budget: &'a Budget,
    taken: usize,
}

impl<'a> Names<'a> {
    pub(crate) fn new(budget: &'a Budget) -> Self {
        Self { bytes: Vec::new(), budget, taken: 0 }
    }

    /// Adds a name; returns `false` if there is no room at the moment. The first name always fits.
    pub(crate) fn push(&mut self, name: &CStr) -> bool {
        let name = name.to_bytes_with_nul();
        while self.bytes.len() + name.len() > self.bytes.capacity() {
            if !self.grow(name.len()) {
                return false;
            }
        }
        self.bytes.extend_from_slice(name);
        true
    }

    /// Removes and returns the last name.
    pub(crate) fn pop(&mut self) -> Option<CString> {
        let (_, others) = self.bytes.split_last()?;
        let start = others.iter().rposition(|byte| *byte == 0).map_or(0, |nul| nul + 1);
        let name = CString::from_vec_with_nul(self.bytes.split_off(start)).ok();
        if self.bytes.is_empty() {
            self.free();
        }
        name
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Doubles the room, as far as the budget allows.
    fn grow(&mut self, needed: usize) -> bool {
        let capacity = self.bytes.capacity();
        if capacity == 0 {
            self.bytes.reserve_exact(needed.max(MIN_CAPACITY));
            return true;
        }
        if capacity * 2 > MAX_CAPACITY || !self.budget.try_reserve(capacity) {
            return false;
        }
        self.taken += capacity;
        self.bytes.reserve_exact(capacity * 2 - self.bytes.len());
        true
    }

    fn free(&mut self) {
        self.bytes = Vec::new();
        self.budget.release(std::mem::take(&mut self.taken));
    }
}

impl Drop for Names<'_> {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pops_names_in_reverse_and_returns_the_budget() {
        let budget = Budget::new(1 << 20);
        let mut names = Names::new(&budget);
        let given: Vec<_> = (0..5000).map(|number| CString::new(format!("name-{number}")).unwrap()).collect();
        assert!(given.iter().all(|name| names.push(name)));
        assert!(budget.free() < 1 << 20);
        let back: Vec<_> = std::iter::from_fn(|| names.pop()).collect();
        assert!(back.iter().rev().eq(&given) && names.is_empty());
        assert_eq!(budget.free(), 1 << 20);
    }

    #[test]
    fn accepts_a_few_names_without_any_budget() {
        let budget = Budget::new(0);
        let mut names = Names::new(&budget);
        let long = CString::new("n".repeat(245)).unwrap();
        let fit = (0..).take_while(|_| names.push(&long)).count();
        assert_eq!(fit, 16);
        // A network file system may have longer names.
        let mut names = Names::new(&budget);
        assert!(names.push(&CString::new("n".repeat(2 * MIN_CAPACITY)).unwrap()) && !names.push(&long));
    }

    #[test]
    fn limits_the_memory_of_one_directory() {
        let budget = Budget::new(usize::MAX);
        let mut names = Names::new(&budget);
        let long = CString::new("n".repeat(245)).unwrap();
        let fit = (0..1_000_000).take_while(|_| names.push(&long)).count();
        assert_eq!(fit, MAX_CAPACITY / 246);
    }
}
