//! Checks of the guide: link targets exist, an API server accepts the manifests, and the commands exist.

mod prose;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kube_sim::Cluster;

/// A fenced block: its language and its text.
struct Block {
    language: String,
    text: String,
}

fn book() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn project() -> PathBuf {
    book().join("../..").canonicalize().unwrap()
}

/// Every page but the summary: its path below `pages`, and its text.
fn pages() -> Vec<(String, String)> {
    let (mut folders, mut pages) = (vec![book().join("pages")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(book().join("pages")).unwrap().display().to_string();
                pages.push((name, fs::read_to_string(path).unwrap()));
            }
        }
    }
    pages.retain(|(name, _)| name != "SUMMARY.md" && name.ends_with(".md"));
    pages.sort();
    pages
}

/// Splits a page into its code blocks and the text around them.
fn split(page: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut prose, mut open) = (Vec::new(), String::new(), None);
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some(Block { language: language.to_owned(), text: String::new() }),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
        }
    }
    assert!(open.is_none(), "a code block is not closed");
    (blocks, prose)
}

/// The targets of all links, and the pictures.
fn links(prose: &str) -> Vec<&str> {
    let after = |start, end| prose.split(start).skip(1).map(move |rest| rest.split(end).next().unwrap());
    after("](", ')').chain(after(" src=\"", '"')).chain(after(" srcset=\"", '"')).collect()
}

fn front_page() -> String {
    fs::read_to_string(project().join("README.md")).unwrap()
}

/// The manifests in a block: the input of `kubectl apply -f -` in shell commands, or the whole YAML block.
fn manifests(Block { language, text }: &Block) -> Option<&str> {
    match language.as_str() {
        "yaml" => Some(text),
        "sh" => Some(text.split_once("kubectl apply -f - <<'EOF'\n")?.1.split_once("\nEOF\n")?.0),
        _ => None,
    }
}

/// The anchors of a page's headings, as GitHub and mdBook create them.
fn anchors(page: &str) -> BTreeSet<String> {
    let (_, prose) = split(page);
    let headings = prose.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    headings.map(|heading| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

#[test]
fn summary_lists_every_page_once() {
    let summary = fs::read_to_string(book().join("pages/SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    listed.sort_unstable();
    let pages = pages();
    assert_eq!(listed, pages.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    assert!(pages.len() > 20, "{}", pages.len());
}

/// Every page of the project, including the guide's pages.
fn all_pages() -> Vec<PathBuf> {
    let (mut folders, mut pages) = (vec![project()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                let generated = name.starts_with('.') || matches!(&*name, "target" | "template");
                folders.extend((!generated).then(|| entry.path()));
            } else if name.ends_with(".md") {
                pages.push(entry.path());
            }
        }
    }
    pages
}

#[test]
fn every_link_has_an_existing_target_and_anchor() {
    let mut broken = Vec::new();
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&split(&text).1).into_iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = target.exists()
                && (anchor.is_empty() || anchors(&fs::read_to_string(target).unwrap()).contains(anchor));
            if !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Checks that a test covers the blocks of each language.
#[test]
fn every_code_block_is_tested() {
    let compiled = fs::read_to_string(book().join("src/lib.rs")).unwrap();
    for (name, page) in pages().into_iter().chain([("README.md".to_owned(), front_page())]) {
        for Block { language, text } in split(&page).0 {
            let checked = match language.as_str() {
                // The template's files; a test of `cargo xtask new` compares and builds them.
                "rust" | "toml" if name == "write/first.md" => true,
                // Rust is compiled as `FrontPage`; a test below checks TOML.
                "rust" | "toml" if name == "README.md" => true,
                "rust" => compiled.contains(&format!("\"{name}\"")),
                // Tests below check manifests and commands.
                "yaml" | "sh" => true,
                // Checked below, or compared with the program's output by a test of the hostPath provisioner.
                "console" => text.starts_with("$ "),
                // A drawing.
                "text" => matches!(&*name, "how/crash-safety.md" | "use/hostpath.md"),
                // Policies; tests of the provisioner use the first policy of each page.
                "json" => matches!(&*name, "use/aws-s3.md" | "use/seaweedfs.md" | "use/versity.md"),
                _ => false,
            };
            assert!(checked, "{name}: no test checks this block of {language:?}:\n{text}");
        }
    }
}

#[test]
fn api_server_accepts_every_manifest() {
    let crds = project().join("crates/objectbucket-api/crds/strict");
    let mut count = 0;
    for (name, page) in pages().into_iter().chain([("README.md".to_owned(), front_page())]) {
        // Each page has its own cluster, because some pages contain two variants of one object.
        for text in split(&page).0.iter().filter_map(manifests) {
            let cluster = Cluster::new();
            for kind in ["objectbucketclaims", "objectbuckets"] {
                let crd = fs::read_to_string(crds.join(format!("{kind}.objectbucket.io.yaml"))).unwrap();
                cluster.create_yaml(&crd).unwrap();
            }
            if text.contains("objectstorage.k8s.io/") {
                let version = if text.contains("objectstorage.k8s.io/v1alpha2") { "v1alpha2" } else { "v1alpha1" };
                for crd in fs::read_dir(project().join("testbed/cosi").join(version)).unwrap() {
                    cluster.create_yaml(&fs::read_to_string(crd.unwrap().path()).unwrap()).unwrap();
                }
            }
            let taken = cluster.create_yaml(text).unwrap_or_else(|status| panic!("{name}: {status:?}\n{text}"));
            count += taken.len();
        }
    }
    assert!(count > 10, "{count}");
}

/// Checks that the commands, folders and charts of this project that pages mention exist.
#[test]
fn commands_refer_to_existing_commands_folders_and_charts() {
    let commands = fs::read_to_string(project().join("xtask/src/main.rs")).unwrap();
    let mut count = 0;
    for (name, page) in pages().into_iter().chain([("README.md".to_owned(), front_page())]) {
        for Block { text, .. } in split(&page).0.iter().filter(|block| matches!(&*block.language, "sh" | "console")) {
            let shell =
                text.lines().filter_map(|line| line.strip_prefix("$ ").or((!text.starts_with("$ ")).then_some(line)));
            for line in shell {
                let words: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with("RUSTFLAGS")).collect();
                match words[..] {
                    ["cargo", "xtask", command, ..] => {
                        let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
                        let variant: String = command.split('-').map(capital).collect();
                        assert!(
                            commands.contains(&format!("\n    {variant}")),
                            "{name}: there is no cargo xtask {command}"
                        );
                    }
                    ["kubectl", "apply" | "delete", "-k", folder] => {
                        assert!(project().join(folder).join("kustomization.yaml").exists(), "{name}: {folder}");
                    }
                    ["helm", "template" | "install", _, chart, ..] => {
                        assert!(project().join(chart).join("Chart.yaml").exists(), "{name}: {chart}");
                    }
                    _ => continue,
                }
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count}");
}

/// Checks that the commands and manifests on the front page fit together: namespace, class, claim, pod and dependency.
#[test]
fn front_page_commands_work_together() {
    let page = front_page();
    let blocks = split(&page).0;
    let shell: String = blocks.iter().filter(|block| block.language == "sh").map(|block| block.text.as_str()).collect();
    let chart = project().join("deploy/charts/hostpath-provisioner");
    let readme = fs::read_to_string(chart.join("README.md")).unwrap();
    let installs = &split(&readme).0[0].text;
    assert!(
        installs.contains("pod-security.kubernetes.io/enforce=") && installs.contains("\nhelm install "),
        "{installs}"
    );
    assert!(shell.contains(installs.as_str()), "the chart's README has other commands:\n{installs}");
    let (_, class) = shell.split_once("storageClassName: ").unwrap();
    let class = class.lines().next().unwrap();
    let values = fs::read_to_string(chart.join("values.yaml")).unwrap();
    assert!(values.contains(&format!("\n  name: \"{class}\"\n")), "the chart creates no class {class}");
    // The page shows and deletes the objects that it creates.
    let shown = blocks.iter().find(|block| block.language == "console").unwrap();
    for name in ["persistentvolumeclaim/data ", "persistentvolume/pvc-", " Bound ", " default/data ", " hostpath "] {
        assert!(shown.text.contains(name), "{name}: {}", shown.text);
    }
    assert!(shell.contains("kubectl delete pod/writer pvc/data"), "{shell}");
    // The dependency's path is correct for a folder next to the clone.
    let dependency = blocks.iter().find(|block| block.language == "toml").unwrap();
    let (_, path) = dependency.text.split_once("path = \"../kube-provisioner/").unwrap();
    assert!(project().join(path.split('"').next().unwrap()).join("Cargo.toml").exists(), "{path}");
    // The page contains no placeholder URL, and `.ci/run` runs the two commands for contributors.
    assert!(!page.contains("example.com/kube-provisioner"), "{page}");
    let ci = fs::read_to_string(project().join(".ci/run")).unwrap();
    for command in ["cargo test", "cargo xtask test"] {
        assert!(shell.contains(&format!("\n{command} ")) || shell.starts_with(&format!("{command} ")), "{command}");
        assert!(ci.contains(&format!("step {command} ")), ".ci/run does not run {command}");
    }
}

#[test]
fn light_and_dark_pictures_differ_only_in_colors() {
    let [light, dark] = ["light", "dark"].map(|scheme| {
        let path = book().join(format!("pages/life-of-a-claim-{scheme}.svg"));
        let picture = fs::read_to_string(path).unwrap();
        // Removes the colors.
        picture
            .split('#')
            .map(|part| part.trim_start_matches(|c: char| c.is_ascii_hexdigit()).to_owned())
            .collect::<Vec<_>>()
    });
    assert!(light.len() > 10, "{light:?}");
    assert_eq!(light, dark);
}
