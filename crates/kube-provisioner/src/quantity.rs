//! Sizes in Kubernetes' notation: `1Gi`, `1.5G`, `100m`, `1e3`.
//!
//! The grammar and the limits match `resource.Quantity` in `k8s.io/apimachinery`
//! (<https://pkg.go.dev/k8s.io/apimachinery/pkg/api/resource#Quantity>). All arithmetic is on integers:
//! digits are exact down to one billionth, and sizes are rounded up, never down.

use std::str::FromStr;

use crate::parameters::quoted;

#[cfg(test)]
mod tests;

/// Parses `text` as a number of bytes, rounded up to whole bytes.
///
/// More than [`i64::MAX`] bytes become [`i64::MAX`], see [`Quantity::bytes`].
///
/// # Errors
///
/// [`QuantityError::Malformed`] and [`QuantityError::UnknownSuffix`] if `text` is not a quantity,
/// [`QuantityError::Negative`] if it is below zero.
pub fn parse_bytes(text: &str) -> Result<u64, QuantityError> {
    text.parse::<Quantity>()?.bytes().map_err(|error| match error {
        QuantityError::Negative { .. } => QuantityError::Negative { text: text.into() },
        other => other,
    })
}

/// Formats `bytes` in the canonical form of apimachinery's binary quantities: `1Gi` for 1073741824.
///
/// The result is exact: the suffix is the largest one that leaves a whole number, and 1500 stays `1500`. As in
/// apimachinery, a value below 1024 is written with a decimal suffix, so 1000 is `1k`.
///
/// A value above [`i64::MAX`] is written in full, although every reader, including this module, reads it as
/// [`i64::MAX`] if it has a binary suffix.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    if bytes == 1000 {
        return "1k".into();
    }
    match bytes.trailing_zeros() as usize / 10 {
        steps @ 1.. if bytes != 0 => format!("{}{}", bytes >> (10 * steps), BINARY[steps - 1]),
        _ => bytes.to_string(),
    }
}

/// Returns the original text of a size, or `bytes` formatted if the text has fractions of a byte: Kubernetes writes
/// 1.2Gi as `1288490188800m`.
pub(crate) fn in_whole_bytes(text: &str, bytes: u64) -> String {
    if text.ends_with(['m', 'u', 'n']) { format_bytes(bytes) } else { text.to_owned() }
}

/// A parsed quantity, exact from one billionth up to about 1.7 · 10²⁹.
///
/// Beyond these limits it follows apimachinery's rules where they exist, and never fails:
/// - values finer than one billionth are rounded away from zero, so `0.1n` is `1n`;
/// - a quantity with a binary suffix is limited to ±[`i64::MAX`], so `8Ei` and `9Ei` are both 2⁶³-1;
/// - any other quantity is limited to ±1.7 · 10²⁹, where all larger ones are equal.
///
/// Quantities compare by value: `1Ki` equals `1024` and is greater than `1k`. The suffix is not kept; to write a
/// quantity back, keep its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    /// In billionths, never `i128::MIN`.
    nanos: i128,
}

impl Quantity {
    /// Returns the value as a number of bytes, rounded up to whole bytes: `100m` is 1.
    ///
    /// A value above [`i64::MAX`], the largest size that the Kubernetes API can represent as a number, becomes
    /// [`i64::MAX`]. apimachinery has this limit for binary suffixes (`8Ei`); here it also applies to decimal ones
    /// (`12E`), for which apimachinery's `Value()` overflows.
    ///
    /// # Errors
    ///
    /// [`QuantityError::Negative`] if the value is below zero. `-0` is zero.
    pub fn bytes(&self) -> Result<u64, QuantityError> {
        if self.nanos < 0 {
            return Err(QuantityError::Negative { text: self.decimal() });
        }
        let bytes = self.nanos.unsigned_abs().div_ceil(NANOS_PER_UNIT);
        Ok(bytes.min(LARGEST) as u64)
    }

    /// Formats the value without a suffix, such as `-1.5`.
    fn decimal(&self) -> String {
        let nanos = self.nanos.unsigned_abs();
        let sign = if self.nanos < 0 { "-" } else { "" };
        let text = format!("{sign}{}.{:09}", nanos / NANOS_PER_UNIT, nanos % NANOS_PER_UNIT);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    /// Parses `[+-]digits[.digits][suffix]`; digits may be missing on one side of the point.
    ///
    /// The suffix is one of `n u m k M G T P E`, one of `Ki Mi Gi Ti Pi Ei`, or a decimal exponent: `e` or `E`, an
    /// optional sign and digits. `1E` is 10¹⁸ and `1E3` is 1000. Only the digits `0` to `9` are allowed, and no
    /// blanks. Unlike apimachinery this parser requires a digit: `Gi` and `-` are errors here and zero there.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let malformed = || QuantityError::Malformed { text: text.into() };
        let (negative, unsigned) = match text.strip_prefix(['+', '-']) {
            Some(rest) => (text.starts_with('-'), rest),
            None => (false, text),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(malformed());
        }
        let scale = Scale::parse(suffix).ok_or_else(|| {
            if suffix.chars().all(char::is_alphabetic) {
                QuantityError::UnknownSuffix { text: text.into(), suffix: suffix.into() }
            } else {
                malformed()
            }
        })?;
        let nanos = scale.apply(whole, fraction);
        Ok(Self { nanos: if negative { -nanos } else { nanos } })
    }
}

/// The reason why a string is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// The string does not have the form of a quantity.
    #[error(
        "{} is not a quantity: expected a number with an optional suffix, such as 1073741824, 1.5Gi or 10G",
        quoted(text)
    )]
    Malformed {
        /// The whole text.
        text: String,
    },
    /// The quantity is valid but below zero, which no size can be.
    #[error("{} is negative: expected a size of zero or more", quoted(text))]
    Negative {
        /// The quantity as written, or its decimal value if the text is no longer known.
        text: String,
    },
    /// A number is followed by letters that are not a suffix.
    #[error(
        "{} ends in the unknown suffix {}: expected one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei",
        quoted(text),
        quoted(suffix)
    )]
    UnknownSuffix {
        /// The whole text.
        text: String,
        /// The text after the number.
        suffix: String,
    },
}

/// The factor of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    /// 2 to this power.
    Binary(u32),
    /// 10 to this power.
    Decimal(i64),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        if let Some(index) = BINARY.iter().position(|known| *known == suffix) {
            return Some(Self::Binary(10 * (index as u32 + 1)));
        }
        if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
            return Some(Self::Decimal(*power));
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // An exponent too large for the machine exceeds the limits of a quantity in either direction.
        let power = digits.parse().unwrap_or(i64::MAX);
        Some(Self::Decimal(if exponent.starts_with('-') { -power } else { power }))
    }

    /// Returns the billionths in `whole.fraction` times this scale: rounded up, and limited to the type's range.
    fn apply(self, whole: &str, fraction: &str) -> i128 {
        let (unit, shift, limit) = match self {
            Self::Binary(power) => (NANOS_PER_UNIT << power, 0, LARGEST * NANOS_PER_UNIT),
            Self::Decimal(power) => (NANOS_PER_UNIT, power, i128::MAX as u128),
        };
        let digits = [whole, fraction].concat();
        let significant = digits.trim_start_matches('0');
        if significant.is_empty() {
            return 0;
        }
        // A decimal scale moves the point: this many significant digits are before it.
        let leading_zeros = digits.len() - significant.len();
        let point = (whole.len() as i64 - leading_zeros as i64).saturating_add(shift);
        let nanos = if point > MAX_DIGITS {
            u128::MAX
        } else if point < -MAX_DIGITS {
            1
        } else {
            Decimal { digits: significant.as_bytes(), point }.times(unit)
        };
        i128::try_from(nanos.min(limit)).unwrap_or(i128::MAX)
    }
}

/// The number `0.digits` · 10^point, for a `point` small enough to loop over.
struct Decimal<'a> {
    digits: &'a [u8],
    point: i64,
}

impl Decimal<'_> {
    /// Returns the product with `unit`, rounded up; `u128::MAX` if it is too large.
    fn times(&self, unit: u128) -> u128 {
        let before = self.point.clamp(0, self.digits.len() as i64) as usize;
        let missing_zeros = (self.point - before as i64).max(0);
        let whole = self.digits[..before]
            .iter()
            .copied()
            .chain((0..missing_zeros).map(|_| b'0'))
            .fold(0u128, |sum, digit| sum.saturating_mul(10).saturating_add(u128::from(digit - b'0')));

        // Horner's rule from the last digit on; the remainders only affect the rounding. `unit` is below 2^90, so
        // ten times its value cannot overflow.
        let leading_zeros = (-self.point).max(0);
        let mut part = 0;
        let mut inexact = false;
        for digit in self.digits[before..].iter().rev().copied().chain((0..leading_zeros).map(|_| b'0')) {
            part += u128::from(digit - b'0') * unit;
            inexact |= part % 10 != 0;
            part /= 10;
        }
        whole.saturating_mul(unit).saturating_add(part).saturating_add(u128::from(inexact))
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(end)
}

const NANOS_PER_UNIT: u128 = 1_000_000_000;

/// The largest size in bytes.
const LARGEST: u128 = i64::MAX as u128;

/// More digits than the largest or the smallest quantity has.
const MAX_DIGITS: i64 = 40;

/// The suffixes of the powers of 1024, in order.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The decimal suffixes and their powers of ten.
const DECIMAL: [(&str, i64); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
