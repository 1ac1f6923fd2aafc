//! Markers, and that the tables of the committed documents match the results.

use super::with_tables;
use crate::mounted::skipped;
use crate::sample;
use std::path::Path;
use std::process::Command;

/// A directory of results with one file, `a.json`, of the suite `quick`.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let text = sample::usual().to_json().unwrap();
    std::fs::write(directory.path().join("a.json"), text).unwrap();
    directory
}

fn made(marker: &str) -> Result<String, String> {
    let text = format!("Before.\n\n<!-- bench: {marker} -->\nold\n<!-- end -->\n\nAfter.\n");
    with_tables(&text, directory().path())
}

#[test]
fn tables_between_markers_are_replaced() {
    let text = made("a.json quick/ratios jobs=1 group=metadata targets=ring,libfuse").unwrap();
    assert_eq!(
        text,
        "Before.\n\n\
         <!-- bench: a.json quick/ratios jobs=1 group=metadata targets=ring,libfuse -->\n\n\
         | ext4 below | native | ring | libfuse | ring / libfuse's best |\n\
         |---|---|---|---|---|\n\
         | create | 400 k/s | 0.132 [0.131 to 0.133] | 0.041 [0.039 to 0.043] | 3.21 |\n\
         | stat-warm | 1.43 M/s | 0.986 [0.973 to 1.007] | 0.965 [0.946 to 0.986] | 1.02 |\n\
         \n<!-- end -->\n\nAfter.\n"
    );
    // A second time it stays as it is.
    assert_eq!(with_tables(&text, directory().path()).unwrap(), text);
}

#[test]
fn rates_and_costs_are_tables() {
    for (table, part) in [
        ("rates", "| create | 400 k/s | 769 k/s |"),
        ("costs", "3 / 6"),
    ] {
        let text = made(&format!("a.json quick/{table}")).unwrap();
        assert!(text.contains(part), "{table}: {text}");
    }
}

#[test]
fn faulty_markers_are_refused() {
    for (marker, why) in [
        ("b.json quick/ratios", "b.json"),
        ("a.json full/ratios", "of the suite quick"),
        ("a.json quick/pictures", "there is no table pictures"),
        ("a.json quick/ratios rows=none", "there is no row none"),
        (
            "a.json quick/ratios targets=none",
            "there is no target none",
        ),
        ("a.json quick/ratios lower=xfs", "nothing to show"),
        ("a.json quick/ratios colour=red", "colour=red?"),
        ("a.json", "SUITE/TABLE"),
    ] {
        let refused = made(marker).unwrap_err();
        assert!(refused.contains(why), "{marker}: {refused}");
    }
    let open = with_tables("<!-- bench: a.json quick/ratios -->\n", directory().path());
    assert!(open.unwrap_err().contains("<!-- end -->"));
}

#[test]
fn the_documents_tables_are_those_of_the_results() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (name, tables) in [
        ("docs/performance.md", "shares/ratios"),
        ("bench/results/TABLES.md", "all/goals"),
    ] {
        let text = std::fs::read_to_string(project.join(name)).unwrap();
        let made = with_tables(&text, &project.join("bench/results")).unwrap();
        assert!(
            made == text,
            "{name} does not match bench/results: `cargo xtask bench --document` makes its tables anew"
        );
        assert!(text.contains(tables), "{name}: {tables} is gone");
    }
}

#[test]
fn the_documents_picture_is_that_of_the_results() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/picture.py");
    match Command::new("python3").arg(script).arg("--check").output() {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => skipped(&format!("python3: {error}")),
    }
}
