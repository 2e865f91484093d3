//! Suggestions for misspelt names.

/// Longer keys get no suggestion.
const LONGEST: usize = 64;

/// Returns the name that `text` was probably meant to be.
pub(crate) fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > LONGEST {
        return None;
    }
    let text = text.to_lowercase();
    let near = names.filter_map(|name| {
        let other = name.to_lowercase();
        let distance = strsim::osa_distance(&text, &other);
        (distance <= text.len().min(other.len()) / 3).then_some((distance, name))
    });
    near.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest_name() {
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
