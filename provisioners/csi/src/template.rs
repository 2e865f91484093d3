//! Expands tokens such as `${pvc.name}`, with the syntax of Go's `os.Expand`.

/// Replaces `${token}` and `$token`. Keeps text that is not a token, and omits an unclosed brace.
///
/// # Errors
/// Returns the tokens without a value.
pub(crate) fn expand(template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, Vec<String>> {
    let (mut text, mut missing) = (String::new(), Vec::new());
    let mut rest = template;
    while let Some(at) = rest.find('$').filter(|at| at + 1 < rest.len()) {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (name, length) = token(rest);
        match (name, length) {
            ("", 0) => text.push('$'),
            ("", _) => {}
            (name, _) => match value(name) {
                Some(value) => text.push_str(&value),
                None => missing.push(name.to_owned()),
            },
        }
        rest = &rest[length..];
    }
    text.push_str(rest);
    if missing.is_empty() { Ok(text) } else { Err(missing) }
}

/// Parses the name at the beginning of the text after a dollar sign. Returns it with its length in the text.
fn token(text: &str) -> (&str, usize) {
    match text.strip_prefix('{') {
        Some(inside) => match inside.find('}') {
            Some(end) => (&inside[..end], end + 2),
            None => ("", 1),
        },
        None if text.starts_with(is_special) => (&text[..1], 1),
        None => {
            let end = text.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(text.len());
            (&text[..end], end)
        }
    }
}

/// Returns true for the shell's variables with one-character names.
fn is_special(char: char) -> bool {
    char.is_ascii_digit() || "*#$@!?-".contains(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expands_tokens_like_go() {
        let value = |name: &str| (name == "pv.name" || name == "HOME").then(|| "x".to_owned());
        for (template, expanded) in [
            ("plain", Ok("plain")),
            ("a-${pv.name}-b", Ok("a-x-b")),
            ("${pv.name}${pv.name}", Ok("xx")),
            ("$HOME.txt", Ok("x.txt")),
            ("ends with $", Ok("ends with $")),
            ("a$ b", Ok("a$ b")),
            ("a${pv.name", Ok("apv.name")),
            ("a${}b", Ok("ab")),
            ("$pv.name", Err(["pv"])),
            ("${nothing}", Err(["nothing"])),
            ("$1", Err(["1"])),
            ("$ü", Ok("$ü")),
        ] {
            let expected = expanded.map(str::to_owned).map_err(|names| names.map(str::to_owned).to_vec());
            assert_eq!(expand(template, value), expected, "{template}");
        }
    }
}
