use proptest::prelude::*;

use super::*;

const MAX: u64 = i64::MAX as u64;

#[test]
fn parses_sizes_in_bytes() {
    for (text, bytes) in [
        ("0", 0),
        ("-0", 0),
        ("00", 0),
        ("0.0Ei", 0),
        ("0e99999999999999999999", 0),
        ("1", 1),
        ("+1", 1),
        ("007", 7),
        ("5.", 5),
        (".5", 1),
        ("1.", 1),
        ("5.Gi", 5 << 30),
        (".5Gi", 1 << 29),
        ("1n", 1),
        ("1u", 1),
        ("100m", 1),
        ("1001m", 2),
        ("2000m", 2),
        ("1k", 1_000),
        ("1M", 1_000_000),
        ("1G", 1_000_000_000),
        ("1T", 1_000_000_000_000),
        ("1P", 1_000_000_000_000_000),
        ("1E", 1_000_000_000_000_000_000),
        ("9E", 9_000_000_000_000_000_000),
        ("1Ki", 1 << 10),
        ("1Mi", 1 << 20),
        ("1Gi", 1 << 30),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("1.5Gi", 3 << 29),
        ("1.1Ki", 1127), // 1126.4
        ("0.000000000000000000000000000000001Ei", 1),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E+3", 1000),
        ("1.5e1", 15),
        ("15e-1", 2),
        ("1e-9", 1),
        ("1e-400", 1),
        ("1e-99999999999999999999", 1),
        ("9223372036854775806", MAX - 1),
        ("9223372036854775807", MAX),
        ("9223372036854775807000m", MAX),
        ("9223372036854775808", MAX),
        ("7.9999999999999999999Ei", MAX),
        ("8Ei", MAX),
        ("12E", MAX),
        ("1e400", MAX),
        ("1e99999999999999999999", MAX),
    ] {
        assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
    }
}

#[test]
fn rejects_malformed_quantities() {
    for text in [
        "", " ", "+", "-", ".", "+.", "e3", "Gi", "-Gi", "1 Gi", " 1", "1 ", "1\n", "+-1", "--1", "1.1.1", "1..1",
        "1.-1", "0x10", "1_000", "1,5", "1e1.5", "1e+", "1e-", "1e--1", "1e3Gi", "1Gi1", "٣", "１", "1٣", "1²", "\0",
        "1\0",
    ] {
        assert_eq!(parse_bytes(text), Err(QuantityError::Malformed { text: text.into() }), "{text:?}");
    }
    for (text, suffix) in [
        ("1e", "e"),
        ("1i", "i"),
        ("1K", "K"),
        ("1ki", "ki"),
        ("1g", "g"),
        ("1GB", "GB"),
        ("1GiB", "GiB"),
        ("1mi", "mi"),
        ("1Zi", "Zi"),
        ("1µ", "µ"),
        ("NaN", ""),
        ("inf", ""),
    ] {
        let expected = match suffix {
            "" => QuantityError::Malformed { text: text.into() },
            _ => QuantityError::UnknownSuffix { text: text.into(), suffix: suffix.into() },
        };
        assert_eq!(parse_bytes(text), Err(expected), "{text}");
    }
}

#[test]
fn rejects_negative_sizes() {
    for text in ["-1", "-1Gi", "-0.1n", "-1e400", "-9Ei"] {
        assert_eq!(parse_bytes(text), Err(QuantityError::Negative { text: text.into() }), "{text}");
    }
    let error = "-1500m".parse::<Quantity>().unwrap().bytes().unwrap_err();
    assert_eq!(error.to_string(), r#""-1.5" is negative: expected a size of zero or more"#);
}

#[test]
fn messages_quote_the_text_and_the_expected_form() {
    assert_eq!(
        parse_bytes("1GB").unwrap_err().to_string(),
        r#""1GB" ends in the unknown suffix "GB": expected one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei"#
    );
    assert_eq!(
        parse_bytes("ten\n").unwrap_err().to_string(),
        r#""ten\n" is not a quantity: expected a number with an optional suffix, such as 1073741824, 1.5Gi or 10G"#
    );
}

#[test]
fn formats_sizes_in_canonical_form() {
    for (bytes, text) in [
        (0, "0"),
        (1, "1"),
        (999, "999"),
        (1000, "1k"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1500, "1500"),
        (2000, "2000"),
        (1536 << 20, "1536Mi"),
        (1_073_741_824, "1Gi"),
        (1_073_741_825, "1073741825"),
        (1 << 60, "1Ei"),
        (MAX, "9223372036854775807"),
        (1 << 63, "8Ei"),
        (u64::MAX, "18446744073709551615"),
    ] {
        assert_eq!(format_bytes(bytes), text);
    }
}

#[test]
fn compares_quantities_by_value() {
    let ascending =
        ["-1e400", "-1Ki", "-1k", "-1n", "0", "1n", "1u", "1m", "999m", "1", "1k", "1Ki", "1Gi", "8Ei", "12E", "1e400"];
    for pair in ascending.windows(2) {
        let [low, high] = [pair[0], pair[1]].map(|text| text.parse::<Quantity>().unwrap());
        assert!(low < high, "{pair:?}");
    }
    for (left, right) in
        [("1Ki", "1024"), ("1E3", "1k"), ("0.1n", "1n"), ("8Ei", "9Ei"), ("-0", "0"), ("1.50", "1500m")]
    {
        assert_eq!(left.parse::<Quantity>(), right.parse::<Quantity>());
    }
}

#[test]
fn long_texts_take_linear_time() {
    let digits = "9".repeat(1_000_000);
    assert_eq!(parse_bytes(&digits), Ok(MAX));
    assert_eq!(parse_bytes(&format!("0.{digits}Ei")), Ok(1 << 60));
    assert_eq!(parse_bytes(&format!("1e-{digits}")), Ok(1));
    assert_eq!(parse_bytes(&format!("{digits}e-1000000")), Ok(1));
    assert_eq!(parse_bytes(&format!("{}1", "0".repeat(1_000_000))), Ok(1));
    let error = parse_bytes(&"x".repeat(1_000_000)).unwrap_err();
    assert!(error.to_string().len() < 250, "{error}");
}

proptest! {
    #[test]
    fn equals_long_hand_arithmetic(whole in "[0-9]{0,45}", fraction in "[0-9]{0,45}", scale in scales()) {
        prop_assume!(!(whole.is_empty() && fraction.is_empty()));
        let text = format!("{whole}.{fraction}{}", scale.0);
        let quantity: Quantity = text.parse().unwrap();
        prop_assert_eq!(quantity.nanos, long_hand_nanos(&whole, &fraction, &scale));
        let negative: Quantity = format!("-{text}").parse().unwrap();
        prop_assert_eq!(negative.nanos, -quantity.nanos);
        let bytes = (quantity.nanos as u128).div_ceil(NANOS_PER_UNIT).min(LARGEST);
        prop_assert_eq!(u128::from(quantity.bytes().unwrap()), bytes);
    }

    #[test]
    fn canonical_text_parses_to_the_same_size(bytes in 0..=MAX, shift in 0..63u32) {
        for bytes in [bytes, bytes >> shift, bytes >> shift << shift] {
            let text = format_bytes(bytes);
            prop_assert_eq!(parse_bytes(&text), Ok(bytes), "{}", text);
        }
    }

    #[test]
    fn no_text_causes_a_panic(text in "\\PC{0,20}|[+-]?[0-9.eEinumkKMGTP+-]{0,20}") {
        let _ = parse_bytes(&text);
    }
}

/// A suffix, its power of two, and its power of ten.
fn scales() -> impl Strategy<Value = (String, u32, i32)> {
    prop_oneof![
        (1..=6u32).prop_map(|step| (BINARY[step as usize - 1].into(), 10 * step, 0)),
        (0..DECIMAL.len()).prop_map(|index| (DECIMAL[index].0.into(), 0, DECIMAL[index].1 as i32)),
        ("[eE]", -100..100).prop_map(|(e, power)| (format!("{e}{power}"), 0, power)),
    ]
}

/// Computes the value with any number of decimal digits.
fn long_hand_nanos(whole: &str, fraction: &str, (_, twos, tens): &(String, u32, i32)) -> i128 {
    let mut digits: Vec<u32> = [whole, fraction].concat().bytes().rev().map(|byte| u32::from(byte - b'0')).collect();
    for _ in 0..*twos {
        let mut carry = 0;
        for digit in &mut digits {
            carry += *digit * 2;
            *digit = carry % 10;
            carry /= 10;
        }
        digits.push(carry);
    }
    // The lowest digit comes first, so a power of ten inserts or removes digits at the front.
    let power = tens + 9 - fraction.len() as i32;
    let mut dropped = vec![];
    if power >= 0 {
        digits.splice(0..0, vec![0; power as usize]);
    } else {
        dropped = digits.drain(..digits.len().min(-power as usize)).collect();
    }
    let limit = if *twos > 0 { i64::MAX as i128 * 1_000_000_000 } else { i128::MAX };
    let rounding = i128::from(dropped.iter().any(|digit| *digit != 0));
    let sum = digits.iter().rev().try_fold(0i128, |sum, digit| sum.checked_mul(10)?.checked_add(i128::from(*digit)));
    sum.and_then(|sum| sum.checked_add(rounding)).map_or(limit, |sum| sum.min(limit))
}
