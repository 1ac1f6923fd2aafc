//! Tests of the documents: that links lead somewhere, and that code they show is what is compiled.
#![allow(clippy::unwrap_used)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// README is read in a minute.
const README_LINES_MAX: usize = 160;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// README, CONTRIBUTING and CHANGELOG, and everything below `docs` and directly in `bench`.
fn documents() -> Vec<PathBuf> {
    let root = project();
    let mut directories = vec![root.join("docs")];
    let mut found = markdown_in(&root);
    found.extend(markdown_in(&root.join("bench")));
    while let Some(directory) = directories.pop() {
        found.extend(markdown_in(&directory));
        let entries = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        directories.extend(entries.filter(|path| path.is_dir()));
    }
    found
}

fn markdown_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|is| is == "md"))
        .collect()
}

/// The text without fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !fence && !in_code
    })
}

/// Anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

/// What stands between `](` and `)`.
fn links(text: &str) -> Vec<&str> {
    let parts = prose(text).flat_map(|line| line.split("](").skip(1));
    parts
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
        .collect()
}

#[test]
fn relative_links_lead_to_files_and_headings() {
    let mut texts: HashMap<PathBuf, String> = HashMap::new();
    let mut broken = Vec::new();
    for document in documents() {
        let text = read(&document);
        for link in links(&text)
            .into_iter()
            .filter(|link| !link.contains("://"))
        {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let is_there = target.exists()
                && (anchor.is_empty() || {
                    let text = texts.entry(target.clone()).or_insert_with(|| read(&target));
                    anchors(text).contains(anchor)
                });
            if !is_there {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "links that lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn readme_is_short() {
    let lines = read(&project().join("README.md")).lines().count();
    assert!(lines < README_LINES_MAX, "README.md has {lines} lines");
}

#[test]
fn code_in_documents_is_that_of_the_example_that_is_compiled() {
    let example = read(&project().join("crates/core/examples/hello.rs"));
    let page = read(&project().join("docs/library.md"));
    assert!(
        page.contains(&format!("```rust\n{example}```\n")),
        "docs/library.md differs from examples/hello.rs"
    );
    let readme = read(&project().join("README.md"));
    let block = readme.split("```rust\n").nth(1).unwrap();
    let (block, _) = block.split_once("```").unwrap();
    for line in block.lines().filter(|line| !line.contains('…')) {
        assert!(
            example.lines().any(|other| other == line),
            "README.md: {line}"
        );
    }
}
