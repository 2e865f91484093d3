//! Compares the output that the guide shows with the program's output.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn the_guide_shows_the_output_of_check_class() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/pages/use/classes.md");
    let text = fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for block in text.split("```").skip(1).step_by(2) {
        if let Some(manifest) = block.strip_prefix("yaml\n# ") {
            let (name, _) = manifest.split_once('\n').unwrap();
            fs::write(folder.path().join(name), manifest.trim_start_matches(name)).unwrap();
        } else if let Some(session) = block.strip_prefix("console\n$ hostpath-provisioner ") {
            let (arguments, shown) = session.split_once('\n').unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_hostpath-provisioner"));
            let output = command.current_dir(folder.path()).args(arguments.split(' ')).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), shown, "{arguments}");
            compared += 1;
        }
    }
    assert_eq!(compared, 2);
}
