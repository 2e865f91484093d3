//! `cargo xtask book`: the guide of `docs/book` as HTML, with the pages that it links to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use testbed::control_plane::cache_dir;
use testbed::guard::{Guard, Running};
use testbed::progress;

use crate::build;

/// The mdBook version of the guide. It has a folder of its own, so that other versions are installed next to it.
const MDBOOK: &str = "0.5.4";
const PAGES: &str = "docs/book/pages";

pub(crate) async fn run(guard: &Guard) -> anyhow::Result<ExitCode> {
    let tools = cache_dir()?.join(format!("mdbook-{MDBOOK}"));
    let program = tools.join("bin/mdbook");
    if !program.exists() {
        progress::terminal().line("installing mdbook, once; this takes some minutes");
        let mut install = build::cargo(guard);
        install.args(["install", "mdbook", "--locked", "--no-default-features", "--version", MDBOOK, "--root"]);
        install.arg(&tools);
        ensure!(Running::start(install)?.ended().await?.success(), "mdbook cannot be installed; see above");
    }
    let staged = build::workspace_root().join("target/book");
    stage(&staged)?;
    let mut command = build::command(guard, &program);
    command.arg("build").arg(&staged);
    ensure!(Running::start(command)?.ended().await?.success(), "the guide cannot be built; see above");
    println!("{}", staged.join("book/index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Copies the guide and the pages that it links to into one folder, each at its own path, because mdBook reads only one
/// folder. The summary receives an additional part for these pages.
fn stage(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    let project = build::workspace_root();
    let mut summary = read(&project.join(PAGES).join("SUMMARY.md"))?.replace("](", &format!("]({PAGES}/"));
    let mut copied = files_below(&project.join(PAGES))?;
    copied.retain(|path| !path.ends_with("SUMMARY.md"));
    summary.push_str("\n# The project\n\n");
    for path in pages_outside_guide(project)? {
        let text = read(&path)?;
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("Untitled");
        summary.push_str(&format!("- [{title}]({})\n", path.strip_prefix(project)?.display()));
        copied.push(path);
    }
    for path in copied {
        write(&folder.join("src").join(path.strip_prefix(project)?), &read(&path)?)?;
    }
    write(&folder.join("src/SUMMARY.md"), &summary)?;
    write(&folder.join("book.toml"), &read(&project.join("docs/book/book.toml"))?.replace("src = \"pages\"\n", ""))
}

/// The pages of the project outside of the guide.
fn pages_outside_guide(project: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut pages =
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"].map(|path| project.join(path)).to_vec();
    let mut installing: Vec<_> =
        files_below(&project.join("deploy"))?.into_iter().filter(|path| path.ends_with("README.md")).collect();
    installing.sort();
    pages.extend(installing);
    Ok(pages)
}

fn files_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        // A symlink points to pages that are found elsewhere as well.
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mdBook renders only pages in the summary, so a link to any other page would be broken.
    #[test]
    fn book_contains_every_page_that_the_guide_links_to() {
        let folder = build::workspace_root().join("target/tmp/staged-book");
        stage(&folder).unwrap();
        let (pages, mut count) = (folder.join("src").join(PAGES), 0);
        for page in files_below(&folder.join("src")).unwrap() {
            // The project's front matter links to files outside the book, such as a program's own README.
            let is_project = page.parent() == Some(&folder.join("src"));
            for link in read(&page).unwrap().split("](").skip(1).map(|rest| rest.split([')', '#']).next().unwrap()) {
                if link.ends_with(".md") && !link.contains("://") && !is_project {
                    let target = page.parent().unwrap().join(link);
                    assert!(target.exists(), "{}: the book does not contain {link}", page.display());
                    count += usize::from(page.starts_with(&pages));
                }
            }
        }
        assert!(count > 50, "{count}");
    }
}
