//! Quantities such as `1Gi`, `500m`, `1e3`: apimachinery's `resource.Quantity`, limited to parsing, comparing and
//! printing.

use std::cmp::Ordering;
use std::fmt;

/// An amount: `mantissa` times ten to the power of `scale`, never finer than 10⁻⁹.
#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    format: Format,
    /// The original text, if the server keeps it.
    text: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// A parse error, with the server's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not match the syntax.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is too long.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i32 = -9;
const MILLI: i32 = -3;
/// The server's cap for quantities with a binary suffix.
const MAX_BINARY: i128 = i64::MAX as i128;

impl Quantity {
    /// Parses a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = QuantityParts::split(text)?;
        let (base, exponent, format) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let digits = parts.whole.len() + parts.fraction.len();
        let mut mantissa = number(parts.whole, parts.fraction)?;
        let mut scale = -i32::try_from(parts.fraction.len()).map_err(|_| QuantityError::Number)?;
        let mut kept = None;
        if base == 2 {
            let small = parts.fraction.is_empty() && 15 - digits as i64 - i64::from(exponent) * 3 / 10 > 0;
            if small && exponent % 10 == 0 && mantissa & 7 != 0 {
                kept = Some(text);
            }
            // Such a long number exceeds the cap with any suffix.
            mantissa = mantissa.checked_mul(1 << exponent).ok_or(QuantityError::Number)?;
        } else {
            scale = scale.checked_add(exponent).ok_or(QuantityError::Number)?;
            let canonical = scale % 3 == 0 && !parts.ends_in_thousands() && !parts.whole.starts_with('0');
            if digits <= 18 && scale >= NANO && canonical {
                kept = Some(text);
            }
        }
        // An amount other than zero is at least 10⁻⁹.
        let mut quantity = Self { mantissa, scale, format, text: None };
        quantity.round_up(NANO);
        if format == Format::Binary {
            let cap = Self { mantissa: MAX_BINARY, scale: 0, format, text: None };
            let one = Self { mantissa: 1, scale: 0, format, text: None };
            if quantity.compare(&cap).is_gt() {
                quantity = cap;
            } else if quantity.sign() > 0 && quantity.compare(&one).is_lt() {
                quantity.format = Format::Decimal;
            }
        }
        if parts.negative {
            quantity.mantissa = -quantity.mantissa;
        }
        quantity.text = kept.map(Box::from);
        Ok(quantity)
    }

    /// Returns the amount in the server's notation, if that differs from `text`. With `milli`, the amount is first
    /// rounded up to thousandths, as the server does for every core `ResourceList` (`SetDefaults_ResourceList`).
    pub fn rewrite(text: &str, milli: bool) -> Result<Option<String>, QuantityError> {
        let mut quantity = Self::parse(text)?;
        if milli && quantity.scale < MILLI {
            quantity.text = None;
            quantity.round_up(MILLI);
        }
        let written = quantity.to_string();
        Ok((written != text).then_some(written))
    }

    /// Returns -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match self.mantissa.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// Compares amounts regardless of notation.
    pub fn compare(&self, other: &Self) -> Ordering {
        if self.sign() != other.sign() || self.sign() == 0 {
            return self.sign().cmp(&other.sign());
        }
        let scale = self.scale.min(other.scale);
        match (self.at_scale(scale), other.at_scale(scale)) {
            (Some(left), Some(right)) => left.cmp(&right),
            // The amount is too large for the other's scale, so it is larger.
            (None, _) => self.sign().cmp(&0),
            (_, None) => 0.cmp(&self.sign()),
        }
    }

    /// Returns the amount in units, rounded away from zero. If the amount does not fit, the result is the server's
    /// meaningless value: zero if the digits would fit without the suffix, otherwise the lowest bits.
    pub fn value(&self) -> i64 {
        const MAX_DIGITS: u128 = 10_u128.pow(18);
        let mut whole = Self { text: None, ..self.clone() };
        whole.round_up(0);
        let Some(value) = whole.at_scale(0) else { return 0 };
        let [low @ .., _, _, _, _, _, _, _, _] = value.to_le_bytes();
        match i64::try_from(value) {
            Ok(value) => value,
            Err(_) if self.mantissa.unsigned_abs() < MAX_DIGITS => 0,
            Err(_) => i64::from_le_bytes(low),
        }
    }

    /// Returns the mantissa at a finer scale, if it fits.
    fn at_scale(&self, scale: i32) -> Option<i128> {
        let factor = 10_i128.checked_pow(u32::try_from(self.scale - scale).ok()?)?;
        self.mantissa.checked_mul(factor)
    }

    /// Rounds away from zero to a coarser scale.
    fn round_up(&mut self, scale: i32) {
        if self.scale >= scale {
            return;
        }
        let dropped = scale.abs_diff(self.scale);
        self.mantissa = match 10_i128.checked_pow(dropped) {
            Some(factor) => {
                let rest = self.mantissa % factor;
                self.mantissa / factor + rest.signum()
            }
            None => self.mantissa.signum(),
        };
        self.scale = scale;
    }
}

impl fmt::Display for Quantity {
    /// Prints the canonical form: the largest suffix that leaves a whole number.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return formatter.write_str(text);
        }
        if self.mantissa == 0 {
            return formatter.write_str("0");
        }
        if self.format == Format::Binary {
            let whole = match self.scale {
                0.. => self.at_scale(0),
                // A fractional amount is printed in decimal format.
                _ => {
                    let factor = 10_i128.pow(self.scale.unsigned_abs());
                    (self.mantissa % factor == 0).then_some(self.mantissa / factor)
                }
            };
            if let Some(mut whole) = whole.filter(|whole| whole.abs() >= 1024) {
                let mut power = 0;
                while whole.abs() >= 1024 && whole % 1024 == 0 && power < BINARY.len() - 1 {
                    whole /= 1024;
                    power += 1;
                }
                return write!(formatter, "{whole}{}", BINARY[power]);
            }
        }
        let (mut mantissa, mut exponent) = (self.mantissa, self.scale);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        while exponent % 3 != 0 {
            mantissa *= 10;
            exponent -= 1;
        }
        if self.format != Format::Exponent {
            let index = exponent / 3 + 3;
            if let Some(suffix) = usize::try_from(index).ok().and_then(|index| DECIMAL.get(index)) {
                return write!(formatter, "{mantissa}{suffix}");
            }
        }
        match exponent {
            0 => write!(formatter, "{mantissa}"),
            _ => write!(formatter, "{mantissa}e{exponent}"),
        }
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From 10⁻⁹ to 10¹⁸ in steps of a thousand.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Base (2 or 10), exponent and format of a suffix.
fn suffix(suffix: &str) -> Option<(u32, i32, Format)> {
    if let Some(index) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((10, (index as i32 - 3) * 3, Format::Decimal));
    }
    if let Some(index) = BINARY.iter().position(|known| *known == suffix) {
        return Some((2, index as i32 * 10, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((10, exponent.parse().ok()?, Format::Exponent))
}

fn number(whole: &str, fraction: &str) -> Result<i128, QuantityError> {
    let mut number = 0_i128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = i128::from(digit - b'0');
        number = number.checked_mul(10).and_then(|number| number.checked_add(digit)).ok_or(QuantityError::Number)?;
    }
    Ok(number)
}

/// The parts of a quantity's text.
struct QuantityParts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros, or `0`.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> QuantityParts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text).trim_start_matches('0');
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|letter: char| "eEinumkKMGTP".contains(letter));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Self { negative, whole: if whole.is_empty() { "0" } else { whole }, fraction, suffix })
    }

    fn ends_in_thousands(&self) -> bool {
        self.whole.bytes().chain(self.fraction.bytes()).rev().take(3).filter(|byte| *byte == b'0').count() == 3
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> String {
        Quantity::parse(text).unwrap().to_string()
    }

    #[test]
    fn prints_canonical_forms() {
        // From `TestQuantityParse*` and `TestQuantityString` of apimachinery, and from kube-apiserver 1.37.1.
        for (text, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("Gi", "0"),
            ("00", "0"),
            ("1Gi", "1Gi"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1.1Ki", "1126400m"),
            ("0.5", "500m"),
            ("0.5Ki", "512"),
            ("0.5Mi", "512Ki"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1023Ki", "1023Ki"),
            ("8Gi", "8Gi"),
            ("1e3", "1e3"),
            ("1E3", "1E3"),
            ("1e1", "10"),
            ("1000e0", "1e3"),
            ("100E", "100E"),
            ("1000E", "1e21"),
            ("1.125", "1.125"),
            ("0.125", "125m"),
            ("1.25", "1250m"),
            ("5.5", "5500m"),
            ("-1Gi", "-1Gi"),
            ("+5", "+5"),
            ("-0.5", "-500m"),
            ("0.0000000001", "1n"),
            ("0.1n", "1n"),
            ("100000000000Ei", "9223372036854775807"),
            ("1.G", "1.G"),
            (".5", "500m"),
            ("10000Mi", "10000Mi"),
            ("1e-3", "1e-3"),
        ] {
            assert_eq!(written(text), canonical, "{text}");
        }
    }

    #[test]
    fn rejects_invalid_quantities() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("1Gx", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1..5", QuantityError::Format),
            ("1gi", QuantityError::Format),
            ("1iG", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1mi", QuantityError::Suffix),
        ] {
            assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn rounds_resource_lists_up_to_thousandths() {
        assert_eq!(Quantity::rewrite("1Gi", true), Ok(None));
        assert_eq!(Quantity::rewrite("0.0001", true), Ok(Some("1m".to_owned())));
        assert_eq!(Quantity::rewrite("1n", true), Ok(Some("1m".to_owned())));
        assert_eq!(Quantity::rewrite("1n", false), Ok(None));
    }

    #[test]
    fn compares_amounts_across_notations() {
        for (left, right, order) in [
            ("1Gi", "1024Mi", Ordering::Equal),
            ("1G", "1Gi", Ordering::Less),
            ("1e30", "1Ei", Ordering::Greater),
            ("1e-9", "1", Ordering::Less),
            ("-1", "1", Ordering::Less),
            ("-1e30", "-1", Ordering::Less),
            ("0", "0Gi", Ordering::Equal),
            ("500m", "0.5", Ordering::Equal),
            ("1e100", "1e99", Ordering::Greater),
            ("1e100", "1m", Ordering::Greater),
        ] {
            let (left, right) = (Quantity::parse(left).unwrap(), Quantity::parse(right).unwrap());
            assert_eq!(left.compare(&right), order, "{left} {right}");
            assert_eq!(right.compare(&left), order.reverse(), "{right} {left}");
        }
        assert_eq!(Quantity::parse("1Gi").unwrap().value(), 1 << 30);
        assert_eq!(Quantity::parse("1500m").unwrap().value(), 2);
        assert_eq!(Quantity::parse("-1500m").unwrap().value(), -2);
        assert_eq!(Quantity::parse("1e100").unwrap().value(), 0);
        assert_eq!(Quantity::parse("9223372036854775808").unwrap().value(), i64::MIN);
    }

    proptest! {
        #[test]
        fn printing_keeps_the_amount_and_is_stable(
            number in "[+-]?[0-9]{1,12}(\\.[0-9]{0,9})?",
            suffix in prop::sample::select(vec!["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "E-2"]),
        ) {
            let quantity = Quantity::parse(&format!("{number}{suffix}")).unwrap();
            let again = Quantity::parse(&quantity.to_string()).unwrap();
            prop_assert_eq!(quantity.compare(&again), Ordering::Equal);
            prop_assert_eq!(quantity.to_string(), again.to_string());
        }
    }
}
