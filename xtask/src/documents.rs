//! Tests of the documents: that links lead somewhere, and that code they show is what is compiled.
#![allow(clippy::unwrap_used)]

use crate::project;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// README is read in a minute.
const README_LINES_MAX: usize = 160;

fn read(path: impl AsRef<Path>) -> String {
    let path = project::root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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
    let mut broken = Vec::new();
    for document in project::tree(&|name| name.ends_with(".md")).unwrap() {
        let text = read(&document);
        let links = links(&text).into_iter();
        for link in links.filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                file => document.parent().unwrap().join(file),
            };
            let has_anchor = || anchor.is_empty() || anchors(&read(&target)).contains(anchor);
            if !target.exists() || !has_anchor() {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    let none: [&str; 0] = [];
    assert_eq!(broken, none, "links that lead nowhere");
}

#[test]
fn readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines < README_LINES_MAX, "README.md has {lines} lines");
}

#[test]
fn code_in_documents_is_that_of_the_example_that_is_compiled() {
    let example = read("crates/core/examples/hello.rs");
    assert!(
        read("docs/library.md").contains(&format!("```rust\n{example}```\n")),
        "docs/library.md differs from examples/hello.rs"
    );
    let readme = read("README.md");
    let block = readme.split("```rust\n").nth(1).unwrap();
    let (block, _) = block.split_once("```").unwrap();
    for line in block.lines().filter(|line| !line.contains('…')) {
        let is_in_example = example.lines().any(|other| other == line);
        assert!(is_in_example, "README.md: {line}");
    }
}
