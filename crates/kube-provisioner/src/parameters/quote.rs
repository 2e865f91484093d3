//! Makes foreign texts fit for a message of one line.

/// `text` in quotation marks: at most 64 characters of it, nothing unprintable.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text, MOST_QUOTED))
}

/// `text` as it is, unless it is too long or holds something unprintable.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::new();
    for character in shortened(text, MOST_PRINTED).chars() {
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

const MOST_QUOTED: usize = 64;

const MOST_PRINTED: usize = 256;
