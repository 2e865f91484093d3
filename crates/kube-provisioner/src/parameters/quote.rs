//! Formatting of untrusted strings for a message of one line.

/// Returns `text` in quotation marks, limited to 64 characters and without unprintable ones.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text, MAX_QUOTED))
}

/// Returns `text` unchanged, unless it is too long or contains unprintable characters.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::new();
    for character in shortened(text, MAX_PRINTED).chars() {
        match character {
            '"' | '\'' | '\\' => printable.push(character),
            other => printable.extend(other.escape_debug()),
        }
    }
    printable
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

const MAX_QUOTED: usize = 64;

const MAX_PRINTED: usize = 256;
