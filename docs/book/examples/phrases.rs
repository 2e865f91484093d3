//! `cargo run -p guide --example phrases` lists phrases that often have a plainer form. It forbids none of them.

#![expect(clippy::print_stdout, reason = "the list is its output")]

use std::fs;
use std::path::Path;

const PHRASES: [&str; 14] = [
    "tell",
    "tells",
    "told",
    "goes",
    "as of",
    "anew",
    "looked at",
    "looks at",
    "whoever",
    "whose it is",
    "gives up",
    "given up",
    "for ever",
    "growing pauses",
];

fn main() {
    let mut count = 0;
    list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut count);
    println!("{count} phrases");
}

fn list(folder: &Path, count: &mut usize) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "tests" {
                list(&path, count);
            }
        } else if name.ends_with(".md") || name.ends_with(".rs") {
            for (number, line) in fs::read_to_string(&path).unwrap_or_default().lines().enumerate() {
                let comment = ["//! ", "/// "].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
                let prose = if name.ends_with(".md") { Some(line) } else { comment };
                for phrase in prose.into_iter().flat_map(phrases_of) {
                    println!("{}:{}: {phrase}", path.display(), number + 1);
                    *count += 1;
                }
            }
        }
    }
}

fn phrases_of(prose: &str) -> impl Iterator<Item = &'static str> {
    let words: Vec<&str> =
        prose.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let text = format!(" {} ", words.join(" ").to_lowercase());
    PHRASES.into_iter().filter(move |phrase| text.contains(&format!(" {phrase} ")))
}
