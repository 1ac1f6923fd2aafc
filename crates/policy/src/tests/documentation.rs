//! Every example of `docs/policies.md` compiles.

use super::{accounts, policy};
use crate::content::type_names;
use crate::decision::FILE_TYPES;
use crate::draft::{ERRNOS, RULE_KEYS};
use crate::parse::TOP_KEYS;
use crate::rule::Action;
use crate::{GLOB_BRACES_MAX, GLOB_BYTES_MAX, GLOBS_MAX, POLICY_BYTES_MAX, Policy, RULES_MAX};

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_documented_example_compiles() {
    let page = page();
    let blocks = page.split("```toml\n").skip(1);
    let examples: Vec<&str> = blocks
        .filter_map(|block| block.split("```").next())
        .collect();
    assert!(examples.len() >= 5, "{examples:#?}");
    for example in examples {
        policy(example);
    }
    let fault = Policy::parse(b"\n\npth = 'a'", &accounts()).unwrap_err();
    assert_eq!((fault.line, fault.column), (3, 1));
}

#[test]
fn every_keyword_is_documented() {
    let page = page();
    let keys = TOP_KEYS.iter().chain(RULE_KEYS).copied();
    let words = keys
        .chain(type_names())
        .chain(["/etc/passwd", "/etc/group"]);
    for word in words {
        let is_there = page.contains(&format!("`{word}`")) || page.contains(&format!("[[{word}]]"));
        assert!(is_there, "{word}");
    }
    let quoted = Action::NAMES.iter().copied();
    for word in quoted.chain(FILE_TYPES.iter().map(|(name, _)| *name)) {
        assert!(page.contains(&format!("`\"{word}\"`")), "{word}");
    }
    for (errno, _) in ERRNOS {
        assert!(page.contains(errno), "{errno}");
    }
    for bound in [
        format!("at most {} MiB", POLICY_BYTES_MAX >> 20),
        format!("{RULES_MAX} rules"),
        format!("{GLOBS_MAX} patterns"),
        format!("{GLOB_BYTES_MAX} bytes"),
        format!("{GLOB_BRACES_MAX} times `{{`"),
    ] {
        assert!(page.contains(&bound), "{bound}");
    }
}
