//! "Did you mean".

/// The name that `text` was probably meant to be.
pub(crate) fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let text = lower(text);
    if text.len() > LONGEST {
        return None;
    }
    let near = names.filter_map(|name| {
        let other = lower(name);
        let distance = distance(&text, &other);
        (distance <= text.len().min(other.len()) / 3).then_some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

/// How many letters must be inserted, removed, replaced or swapped with their neighbour.
fn distance(left: &[char], right: &[char]) -> usize {
    let mut before_last = vec![];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut least = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                least = least.min(before_last[j - 1] + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[right.len()]
}

fn lower(text: &str) -> Vec<char> {
    text.chars().take(LONGEST + 1).flat_map(char::to_lowercase).collect()
}

/// Longer keys are not misspelt names.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_names() {
        let names = ["onDelete", "server", "share", "a"];
        for (text, name) in [
            ("onDelte", Some("onDelete")),
            ("ondelete", Some("onDelete")),
            ("onDeleet", Some("onDelete")),
            ("on-delete", Some("onDelete")),
            ("srever", Some("server")),
            ("A", Some("a")),
            ("b", None),
            ("path", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, names.into_iter()), name, "{text}");
        }
        assert_eq!(nearest(&"x".repeat(1_000_000), names.into_iter()), None);
    }
}
