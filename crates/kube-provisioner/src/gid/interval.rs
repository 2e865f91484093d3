//! Sets of free numbers, stored as ranges.

use std::collections::BTreeMap;
use std::fmt;

/// Allocates the numbers of a range, each once.
///
/// Stores the free stretches rather than the used numbers, so each call except [`set_range`](Self::set_range) takes
/// time logarithmic in the number of gaps, however many numbers are in use.
#[derive(Clone)]
pub struct IntervalAllocator {
    min: u64,
    max: u64,
    /// Unused numbers within the range.
    free: u64,
    /// First and last number of each free stretch of all `u64`, inside and outside the range. No two stretches touch.
    gaps: BTreeMap<u64, u64>,
}

impl IntervalAllocator {
    /// Creates an allocator in which all numbers from `min` to `max`, inclusive, are free.
    ///
    /// # Errors
    ///
    /// [`AllocatorError::InvalidRange`] if `min` is above `max`, or if the range is all of `u64`, whose size exceeds a
    /// `u64`.
    pub fn new(min: u64, max: u64) -> Result<Self, AllocatorError> {
        size(min, max)?;
        Ok(Self::over(min, max))
    }

    /// Creates an allocator for limits known to be valid.
    pub(super) fn over(min: u64, max: u64) -> Self {
        Self { min, max, free: max - min + 1, gaps: BTreeMap::from([(0, u64::MAX)]) }
    }

    /// Allocates `number`.
    ///
    /// # Errors
    ///
    /// [`AllocatorError::OutOfRange`] or, if it is in use, [`AllocatorError::Conflict`].
    pub fn allocate(&mut self, number: u64) -> Result<(), AllocatorError> {
        if !self.is_in_range(number) {
            return Err(AllocatorError::OutOfRange);
        }
        let (first, last) = self.gap_around(number).ok_or(AllocatorError::Conflict)?;
        self.gaps.remove(&first);
        if first < number {
            self.gaps.insert(first, number - 1);
        }
        if number < last {
            self.gaps.insert(number + 1, last);
        }
        self.free -= 1;
        Ok(())
    }

    /// Allocates the lowest free number and returns it.
    ///
    /// # Errors
    ///
    /// [`AllocatorError::Full`] if no number is free.
    pub fn allocate_next(&mut self) -> Result<u64, AllocatorError> {
        let number = self.lowest_free(self.min, self.max)?;
        self.allocate(number)?;
        Ok(number)
    }

    /// Frees `number`, even if the range no longer contains it. A number that is not in use stays free.
    pub fn release(&mut self, number: u64) {
        if !self.has(number) {
            return;
        }
        let (mut first, mut last) = (number, number);
        if let Some((before, end)) = self.gaps.range(..number).next_back().map(copied)
            && end.checked_add(1) == Some(number)
        {
            first = before;
        }
        if let Some(after) = number.checked_add(1)
            && let Some(end) = self.gaps.remove(&after)
        {
            last = end;
        }
        self.gaps.insert(first, last);
        if self.is_in_range(number) {
            self.free += 1;
        }
    }

    /// Returns true if `number` is in use, inside or outside the range.
    #[must_use]
    pub fn has(&self, number: u64) -> bool {
        self.gap_around(number).is_none()
    }

    /// Returns how many numbers in the range are free.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.free
    }

    /// Changes the range. Numbers in use stay in use, including those outside the new range.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new), in which case nothing changes.
    pub fn set_range(&mut self, min: u64, max: u64) -> Result<(), AllocatorError> {
        size(min, max)?;
        (self.min, self.max) = (min, max);
        let clipped = |(first, last): (u64, u64)| size(first.max(min), last.min(max)).unwrap_or(0);
        self.free = self.gaps.iter().map(copied).map(clipped).sum();
        Ok(())
    }

    /// Returns the lowest free number between two limits, regardless of the range.
    pub(super) fn lowest_free(&self, min: u64, max: u64) -> Result<u64, AllocatorError> {
        let number = match self.gap_around(min) {
            Some(_) => Some(min),
            None => self.gaps.range(min..).next().map(|(first, _)| *first),
        };
        number.filter(|number| *number <= max).ok_or(AllocatorError::Full)
    }

    fn is_in_range(&self, number: u64) -> bool {
        (self.min..=self.max).contains(&number)
    }

    fn gap_around(&self, number: u64) -> Option<(u64, u64)> {
        let (first, last) = self.gaps.range(..=number).next_back().map(copied)?;
        (number <= last).then_some((first, last))
    }
}

impl fmt::Debug for IntervalAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IntervalAllocator({}..={}, {} free)", self.min, self.max, self.free)
    }
}

/// The reason why a number cannot be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllocatorError {
    /// The number is in use.
    #[error("number already allocated")]
    Conflict,
    /// All numbers are in use.
    #[error("range full")]
    Full,
    /// The range ends before it begins, or is too large.
    #[error("invalid range")]
    InvalidRange,
    /// The number is outside the range.
    #[error("out of range")]
    OutOfRange,
}

fn size(min: u64, max: u64) -> Result<u64, AllocatorError> {
    max.checked_sub(min).and_then(|distance| distance.checked_add(1)).ok_or(AllocatorError::InvalidRange)
}

fn copied((first, last): (&u64, &u64)) -> (u64, u64) {
    (*first, *last)
}

#[cfg(test)]
impl IntervalAllocator {
    pub(super) fn gaps(&self) -> usize {
        self.gaps.len()
    }
}
