//! A comparison of messages with a `.proto` file: both sides as lines. A type's name is lower case, without underscores, after those of the
//! messages around it; its content is lines such as `secrets = 5 map secret` or `volume = 2 volumecontentsource.volumesource oneof type`.

use std::collections::BTreeMap;

pub(crate) mod ours;
pub(crate) mod proto;

pub(crate) type Types = BTreeMap<String, Vec<String>>;

/// `MountVolume`, `mount_volume` and `MOUNT_VOLUME` alike.
pub(crate) fn plain(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}

/// `AzureBlob` as `azure_blob`.
pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(character.to_lowercase());
    }
    snake
}

/// Each line that only one side has.
pub(crate) fn differences(theirs: &Types, ours: &Types) -> Vec<String> {
    let lines = |types: &Types| -> Vec<String> {
        types
            .iter()
            .flat_map(|(name, lines)| {
                [name.clone()].into_iter().chain(lines.iter().map(move |line| format!("{name}: {line}")))
            })
            .collect()
    };
    let (theirs, ours) = (lines(theirs), lines(ours));
    let only = |side: &str, these: &[String], others: &[String]| -> Vec<String> {
        these.iter().filter(|line| !others.contains(line)).map(|line| format!("only {side}: {line}")).collect()
    };
    [only("in the specification", &theirs, &ours), only("here", &ours, &theirs)].concat()
}
