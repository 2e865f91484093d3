//! The little of XML that S3 speaks: elements with text, no attributes that matter, no document types.

use std::fmt::Write as _;

/// An element. What it holds is either text or other elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

impl Element {
    pub(crate) fn new(name: &str, children: Vec<Element>) -> Self {
        Self { name: name.to_owned(), text: String::new(), children }
    }

    pub(crate) fn with_text(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), text: text.into(), children: Vec::new() }
    }

    /// The first child of this name.
    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of a child, empty where there is none.
    pub(crate) fn text_of(&self, name: &str) -> &str {
        self.child(name).map_or("", |child| &child.text)
    }

    pub(crate) fn write(&self) -> String {
        let mut text = String::new();
        self.write_to(&mut text);
        text
    }

    fn write_to(&self, text: &mut String) {
        let _ = write!(text, "<{}>", self.name);
        for letter in self.text.chars() {
            match letter {
                '&' => text.push_str("&amp;"),
                '<' => text.push_str("&lt;"),
                '>' => text.push_str("&gt;"),
                // A parser takes these for blanks or line ends if they are written as they are.
                '\r' | '\n' | '\t' => drop(write!(text, "&#{};", letter as u32)),
                _ => text.push(letter),
            }
        }
        for child in &self.children {
            child.write_to(text);
        }
        let _ = write!(text, "</{}>", self.name);
    }
}

/// Whether XML 1.0 has a way to write all of a text: of the control characters it has three.
/// <https://www.w3.org/TR/xml/#charsets>
pub(crate) fn can_write(text: &str) -> bool {
    text.chars().all(|letter| match letter {
        '\t' | '\n' | '\r' => true,
        letter => letter >= ' ' && !['\u{fffe}', '\u{ffff}'].contains(&letter),
    })
}

/// The document's element. `None` where the text is no XML that S3 would send.
pub(crate) fn parse(text: &str) -> Option<Element> {
    let mut open: Vec<Element> = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}');
    loop {
        let (before, after) = rest.split_once('<')?;
        match open.last_mut() {
            Some(element) => element.text.push_str(&unescape(before)?),
            None if before.trim().is_empty() => {}
            None => return None,
        }
        if let Some(comment) = after.strip_prefix("!--") {
            rest = comment.split_once("-->")?.1;
        } else if let Some(data) = after.strip_prefix("![CDATA[") {
            let (data, after) = data.split_once("]]>")?;
            open.last_mut()?.text.push_str(data);
            rest = after;
        } else if let Some(instruction) = after.strip_prefix('?') {
            rest = instruction.split_once("?>")?.1;
        } else if after.starts_with('!') {
            return None;
        } else {
            let (tag, after) = split_tag(after)?;
            rest = after;
            let (closes, tag) = tag.strip_prefix('/').map_or((false, tag), |tag| (true, tag));
            let (empty, tag) = tag.strip_suffix('/').map_or((false, tag), |tag| (true, tag));
            let name = tag.split_ascii_whitespace().next()?;
            if !closes {
                if open.len() == DEEPEST {
                    return None;
                }
                open.push(Element::with_text(name, ""));
            }
            if closes || empty {
                let mut element = open.pop().filter(|element| element.name == name)?;
                if !element.children.is_empty() {
                    element.text.clear();
                }
                match open.last_mut() {
                    Some(parent) => parent.children.push(element),
                    None => return Some(element),
                }
            }
        }
    }
}

/// S3's deepest answers have six levels.
const DEEPEST: usize = 32;

/// What is inside of a tag, and what follows it. A `>` in an attribute's value ends no tag.
fn split_tag(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let end = text.char_indices().find(|&(_, letter)| match (quote, letter) {
        (None, '>') => true,
        (None, '"' | '\'') => {
            quote = Some(letter);
            false
        }
        (Some(open), letter) => {
            if open == letter {
                quote = None;
            }
            false
        }
        _ => false,
    });
    end.map(|(end, _)| (&text[..end], &text[end + 1..]))
}

fn unescape(text: &str) -> Option<String> {
    let mut parts = text.split('&');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (entity, after) = part.split_once(';')?;
        plain.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let number = entity.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => number.parse(),
                };
                char::from_u32(code.ok()?)?
            }
        });
        plain.push_str(after);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_of_s3() {
        let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- hi --><Error xmlns=\"http://s3/>\">\n \
            <Code>NoSuchKey</Code><Key>a &amp; b&#xA;<![CDATA[<c>]]></Key><Empty/></Error>\n";
        let error = parse(text).unwrap();
        assert_eq!((error.name.as_str(), error.text.as_str()), ("Error", ""));
        assert_eq!(error.text_of("Code"), "NoSuchKey");
        assert_eq!(error.text_of("Key"), "a & b\n<c>");
        assert_eq!(error.child("Empty").map(|empty| empty.text.as_str()), Some(""));
    }

    #[test]
    fn no_answer_of_s3() {
        let deep = "<a>".repeat(100_000);
        let bomb = "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>";
        for text in ["", "no", "<a>", "<a></b>", "</a>", "<a>&b;</a>", "<>", "{}", bomb, &deep] {
            assert_eq!(parse(text), None, "{text:.40}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text: String) {
            let element = Element::new("A", vec![Element::with_text("B", text.clone()), Element::with_text("C", "")]);
            prop_assert_eq!(parse(&element.write()), Some(element));
        }

        #[test]
        fn nothing_panics(text in "[<>/a&;#x!?\\[\\]\"' -]*") {
            let _ = parse(&text);
        }
    }
}
