//! The specification's side: as much of the language as the specifications of drivers use.

use super::{Types, plain, snake};

#[derive(Default)]
pub(crate) struct Proto {
    pub(crate) types: Types,
    /// Such as `csi.v1.Controller.CreateVolume(CreateVolumeRequest) -> CreateVolumeResponse`.
    pub(crate) methods: Vec<String>,
    package: String,
}

pub(crate) fn read(text: &str) -> Proto {
    let code: String = text.lines().map(|line| format!("{} ", line.split("//").next().unwrap_or_default())).collect();
    let mut proto = Proto::default();
    proto.block(&mut statements(&code).into_iter(), "", "");
    proto
}

/// The statements in order: `message X {`, `string name = 1`, `}`.
fn statements(code: &str) -> Vec<String> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    code.split_inclusive(['{', '}', ';'])
        .map(|piece| words(piece.trim_end_matches(';')))
        .filter(|piece| !piece.is_empty())
        .collect()
}

impl Proto {
    /// A block up to its end; `path` has the messages around it, `oneof` the oneof that it is.
    fn block(&mut self, statements: &mut std::vec::IntoIter<String>, path: &str, oneof: &str) {
        while let Some(statement) = statements.next() {
            let words: Vec<&str> = statement.split([' ', '{', '(']).filter(|word| !word.is_empty()).collect();
            match words[..] {
                ["}"] => return,
                ["message" | "enum", name] if statement.ends_with('{') => {
                    let path = join(path, &plain(name));
                    self.types.insert(path.clone(), Vec::new());
                    self.block(statements, &path, "");
                }
                ["oneof", name] => self.block(statements, path, &format!(" oneof {name}")),
                ["service", name] => self.service(statements, name),
                ["extend", _] => self.block(statements, "", ""),
                ["package", name] => self.package = name.to_owned(),
                ["option" | "reserved" | "syntax" | "import", ..] => {}
                _ if path.is_empty() => {}
                _ => {
                    let line = line(&statement) + oneof;
                    self.types.get_mut(path).unwrap().push(line);
                }
            }
        }
    }

    fn service(&mut self, statements: &mut std::vec::IntoIter<String>, service: &str) {
        while let Some(statement) = statements.next().filter(|statement| statement != "}") {
            let Some(rpc) = statement.strip_prefix("rpc ") else { continue };
            let parts: Vec<&str> = rpc.split(['(', ')', ' ', '{']).filter(|part| !part.is_empty()).collect();
            let (package, answer) = (&self.package, parts[parts.len() - 1]);
            self.methods.push(format!("{package}.{service}.{}({}) -> {answer}", parts[0], parts[1]));
            // The end of its options.
            if rpc.ends_with('{') {
                statements.by_ref().find(|statement| statement == "}");
            }
        }
    }
}

/// A field, or an enum's value.
fn line(statement: &str) -> String {
    let (left, right) = statement.split_once('=').unwrap_or_else(|| panic!("{statement}"));
    let (left, right) = (left.trim(), right.trim());
    let number = right.split(' ').next().unwrap();
    let secret = if right.contains("_secret) = true") { " secret" } else { "" };
    match left.rsplit_once(' ') {
        None => format!("{} = {number}", plain(left)),
        Some((kind, name)) => {
            let kind = kind
                .replace("map<string, string>", "map")
                .replace("map<string,string>", "map")
                .trim_start_matches('.')
                .to_owned();
            let kind = match kind.strip_prefix("repeated ") {
                Some(kind) => format!("repeated {}", plain(last(kind))),
                None => plain(last(&kind)),
            };
            format!("{} = {number} {kind}{secret}", snake(name))
        }
    }
}

fn last(kind: &str) -> &str {
    kind.rsplit('.').next().unwrap()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
