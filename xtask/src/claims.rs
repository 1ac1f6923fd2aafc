//! `docs/claims.md` holds each claim of the README against what proves it. Here it is made sure that what
//! it names is there: the sentence in the README, and the test, script or result.

use crate::project;
use std::fs;

/// A row of the table: words of the README, and what proves them.
struct Row {
    claim: String,
    proofs: Vec<String>,
}

fn rows(text: &str) -> Vec<Row> {
    let cells = |line: &str| -> Option<Row> {
        let line = line.strip_prefix("| “")?;
        let (claim, proofs) = line.split_once("” |")?;
        let proofs = proofs.split('`').skip(1).step_by(2);
        Some(Row {
            claim: claim.to_owned(),
            proofs: proofs.map(str::to_owned).collect(),
        })
    };
    text.lines().filter_map(cells).collect()
}

/// Words alone, as they follow one another: without line ends and marks.
fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace(['`', '*'], "")
}

/// Whether there is such a test (`FILE: NAME`) or file.
fn is_there(proof: &str) -> bool {
    let (path, test) = proof.split_once(": ").unwrap_or((proof, ""));
    let path = project::root().join(path);
    if test.is_empty() {
        return path.exists();
    }
    fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("fn {test}(")))
}

#[test]
fn what_proves_each_claim_is_there() {
    let read = |path: &str| fs::read_to_string(project::root().join(path)).expect(path);
    let readme = plain(&read("README.md"));
    let rows = rows(&read("docs/claims.md"));
    assert!(rows.len() > 20, "the table has {} rows", rows.len());
    let mut faults = Vec::new();
    for row in &rows {
        if !readme.contains(&plain(&row.claim)) {
            faults.push(format!("README does not say: {}", row.claim));
        }
        if row.proofs.is_empty() {
            faults.push(format!("nothing proves: {}", row.claim));
        }
        let missing = row.proofs.iter().filter(|proof| !is_there(proof));
        faults.extend(missing.map(|proof| format!("there is no {proof}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_proof_that_is_not_there_is_found() {
    assert!(is_there(
        "xtask/src/claims.rs: what_proves_each_claim_is_there"
    ));
    assert!(!is_there("xtask/src/claims.rs: what_proves_nothing"));
    assert!(is_there("README.md"));
    assert!(!is_there("README.txt"));
    let rows = rows("| “a `b`” | `x: y`, and `z` |\n| no claim | `w` |");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].claim, "a `b`");
    assert_eq!(rows[0].proofs, ["x: y", "z"]);
}
