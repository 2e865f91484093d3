//! Style check for comments and pages: counts patterns that have a plainer form, with a budget for each crate.
//!
//! `budget.tsv` contains the allowed number of uses per area and pattern; the test fails if there are more. After a
//! rewrite, lower the budget with `UPDATE_PROSE=1 cargo test -p guide prose`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::project;

/// Patterns: a name, its phrases, and the rule against them. `*` is the beginning of a doc comment.
const PATTERNS: [(&str, &[&str], &str); 12] = [
    (
        "opener",
        &["* what", "* whether", "* how", "* who", "* whose", "* whom", "* where", "* why"],
        "open a doc comment with a noun phrase or a verb in the third person",
    ),
    ("vague actor", &["somebody", "nobody", "anybody"], "name the component, the object or the user that acts"),
    ("back-reference", &["that of", "those of"], "repeat the noun"),
    ("is no", &["is no", "are no"], "write `is not a`, or `there is no`"),
    ("place", &["in the place of"], "write `instead of`"),
    ("by hand", &["by hand"], "write `manually`"),
    ("beside", &["beside"], "write `in addition to` or `next to`"),
    ("belongs into", &["belongs into", "belong into"], "write `belongs in`"),
    ("goes", &["goes", "gone"], "objects are deleted, or no longer exist"),
    ("anew", &["anew"], "write `again`, or a verb such as `recreate`"),
    ("looks at", &["looked at", "looks at"], "write `checks` or `reconciles`"),
    (
        "idiom",
        &["tell", "tells", "told", "whoever", "whose it is", "gives up", "given up", "for ever", "the way of"],
        "write `report`, `release` or `life cycle`",
    ),
];
/// Phrases that are correct although they contain a pattern.
const EXCEPTIONS: [&str; 6] =
    ["is no longer", "are no longer", "there is no", "there are no", "is no more", "are no more"];

/// One use of a pattern.
struct Place {
    area: String,
    pattern: &'static str,
    text: String,
}

#[test]
fn patterns_stay_within_their_budgets() {
    let (root, path) = (project(), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prose/budget.tsv"));
    let mut places = Vec::new();
    visit(&root, &root, &mut places);
    let mut found: BTreeMap<(String, String), Vec<&Place>> = BTreeMap::new();
    for place in &places {
        found.entry((place.area.clone(), place.pattern.to_owned())).or_default().push(place);
    }
    let budget = fs::read_to_string(&path).unwrap();
    let rows = budget.lines().filter_map(|line| {
        let [area, pattern, count] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        Some(((area.to_owned(), pattern.to_owned()), count.parse::<usize>().ok()?))
    });
    let budget: BTreeMap<(String, String), usize> = rows.collect();
    if std::env::var_os("UPDATE_PROSE").is_some() {
        let rows = found.iter().map(|((area, pattern), places)| format!("{area}\t{pattern}\t{}\n", places.len()));
        return fs::write(path, format!("area\tpattern\tcount\n{}", rows.collect::<String>())).unwrap();
    }
    let mut report = String::new();
    for (key, places) in found {
        let most = budget.get(&key).copied().unwrap_or_default();
        if places.len() > most {
            let rule = PATTERNS.iter().find(|(name, ..)| *name == key.1).map_or("", |(.., rule)| rule);
            writeln!(report, "{}: {} uses of {:?}, and the budget is {most}: {rule}", key.0, places.len(), key.1)
                .unwrap();
            places.iter().for_each(|place| writeln!(report, "    {}", place.text).unwrap());
        }
    }
    assert!(report.is_empty(), "{report}");
}

fn visit(root: &Path, folder: &Path, places: &mut Vec<Place>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "generated"].contains(&&*name) {
                visit(root, &path, places);
            }
        } else if name.ends_with(".md") || name.ends_with(".rs") {
            let below = path.strip_prefix(root).unwrap().display().to_string();
            let text = fs::read_to_string(&path).unwrap();
            let prose = if name.ends_with(".rs") { comments(&text) } else { paragraphs(&text) };
            for (line, words) in prose {
                places.extend(uses(&words).map(|(pattern, phrase)| Place {
                    area: area(&below),
                    pattern,
                    text: format!("{below}:{line}: {}", phrase.trim_start_matches("* ")),
                }));
            }
        }
    }
}

/// The crate or folder of a file.
fn area(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["crates" | "provisioners" | "docs" | "examples", _, ..] => parts[..2].join("/"),
        [_] => "pages of the repository".to_owned(),
        _ => parts[0].to_owned(),
    }
}

/// The comments in a source file: the first line's number, and the text of all lines.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    let mut before = "";
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let mark = ["//!", "///", "//"].into_iter().find(|mark| line.starts_with(mark)).unwrap_or_default();
        let prose = &line[mark.len()..];
        match all.last_mut().filter(|_| !mark.is_empty() && mark == before) {
            _ if mark.is_empty() => {}
            Some((_, comment)) => comment.push_str(prose),
            None => all.push((number + 1, format!("{}{prose}", if mark == "//" { "" } else { "* " }))),
        }
        before = mark;
    }
    all
}

/// The lines of a page outside its code blocks.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut is_block = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        is_block ^= line.trim_start().starts_with("```");
        !is_block
    });
    lines.map(|(number, line)| (number + 1, line.to_owned())).collect()
}

fn uses(text: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '*').filter(|word| !word.is_empty());
    let mut text = format!(" {} ", words.collect::<Vec<_>>().join(" ").to_lowercase());
    for exception in EXCEPTIONS {
        text = text.replace(&format!(" {exception} "), " ");
    }
    let phrases = PATTERNS.into_iter().flat_map(|(name, phrases, _)| phrases.iter().map(move |phrase| (name, *phrase)));
    phrases.flat_map(move |(name, phrase)| {
        let count = text.matches(&format!(" {phrase} ")).count();
        std::iter::repeat_n((name, phrase), count)
    })
}
