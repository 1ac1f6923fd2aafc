//! Markers, and that the project's document says what the results say.

use super::with_tables;
use crate::report::sample;
use crate::results::Kind;
use std::path::{Path, PathBuf};

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
fn what_stands_between_the_markers_is_made_anew() {
    let text = made("a.json quick/ratios jobs=1 group=metadata contestants=ring,libfuse").unwrap();
    assert_eq!(
        text,
        "Before.\n\n\
         <!-- bench: a.json quick/ratios jobs=1 group=metadata contestants=ring,libfuse -->\n\n\
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
fn there_is_a_table_of_everything() {
    for (table, part) in [
        (
            "run",
            "`thrufs bench --suite quick .`, 2026-11-21: 5 interleaved rounds.",
        ),
        (
            "against",
            "| create | time of ring / (floor-uring + native) |",
        ),
        (
            "times",
            "| build-c | 9.00 ms | – | – | 1.039 [1.033 to 1.044] | **failed** | – |",
        ),
        ("rates", "| create | 400 k/s | 769 k/s |"),
        ("costs", "3 / 6"),
        ("latency", "2.40 µs / 9.60 µs"),
    ] {
        let text = made(&format!("a.json quick/{table}")).unwrap();
        assert!(text.contains(part), "{table}: {text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (marker, why) in [
        ("b.json quick/ratios", "b.json"),
        ("a.json full/ratios", "of the suite quick"),
        ("a.json quick/pictures", "there is no table pictures"),
        ("a.json quick/ratios rows=none", "there is no row none"),
        (
            "a.json quick/ratios contestants=none",
            "there is no contestant none",
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
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document: PathBuf = project.join("docs/performance.md");
    let text = std::fs::read_to_string(&document).unwrap();
    let made = with_tables(&text, &project.join("bench/results")).unwrap();
    assert!(
        made == text,
        "docs/performance.md does not match bench/results: `cargo xtask bench --document` makes its tables anew"
    );
    assert!(text.contains("all/goals"), "the table of goals is gone");
}

const GUEST: &str = r#"{"guest": "qemu", "lower": "tmpfs", "cache": "never", "seconds": "1", "rows": [
    {"row": "read-psync-1", "unit": "/s", "9p": [1000.0, 2000.0, 1500.0],
     "thrufs": [3000.0, 3000.0, 3000.0], "virtiofsd": [1500.0, 1500.0, 1500.0]}]}"#;
const KERNELS: &str = r#"{"guest": "qemu", "lower": "tmpfs", "cache": "auto", "rows": [
    {"row": "linux-6.1-rseq-1", "unit": "/s", "tmpfs": [100.0], "thrufs": [40.0]},
    {"row": "linux-6.12-rseq-1", "unit": "/s", "tmpfs": [200.0], "thrufs": [30.0]}]}"#;

/// What a marker becomes where there are runs in guests as well.
fn made_of_guests(marker: &str) -> Result<String, String> {
    let directory = directory();
    std::fs::write(directory.path().join("guest.json"), GUEST).unwrap();
    std::fs::write(directory.path().join("kernels.json"), KERNELS).unwrap();
    let text = format!("<!-- bench: {marker} -->\n<!-- end -->\n");
    with_tables(&text, directory.path())
}

#[test]
fn runs_in_guests_have_tables_too() {
    for (marker, part) in [
        (
            "guest.json guest/guest-ratios",
            "| row | unit | thrufs | virtiofsd | 9p | thrufs / virtiofsd | thrufs / 9p |\n\
             |---|---|---|---|---|---|---|\n\
             | read-psync-1 | /s | 3000 | 1500 | 1500 | 2.00 [2.00 to 2.00] | 2.00 [1.50 to 3.00] |\n",
        ),
        (
            "guest.json guest/guest-run",
            "Measured in 3 rounds of 1 s for each figure, with --guest qemu, tmpfs beneath, cache=never.",
        ),
        (
            "kernels.json guest/guest-kernels",
            "| tmpfs, 1 | 100 | 200 | 2.00 [2.00 to 2.00] |\n| tmpfs, 1, without rseq | – | – | – |",
        ),
        (
            "guest.json,kernels.json guest/beside-virtiofs",
            "| read, psync, per second | 24600 | 1500 | 24600 (1.00) | 3000 (2.00 [1.50 to 3.00]) | \
             1500 (1.00 [0.75 to 1.50]) | 165000 (6.71) | not served |\n",
        ),
        (
            "guest.json,kernels.json guest/beside-close-guest",
            "| open and close, per second | 1329857 | 100 | 1421667 (1.07) | – | 1523521 (1.15) | \
             200 (2.00) |\n",
        ),
        (
            "guest.json guest/beside-virtiofs",
            "\n23 more lines were published and not measured here.\n",
        ),
    ] {
        let text = made_of_guests(marker).unwrap();
        assert!(text.contains(part), "{marker}: {text}");
    }
    for (marker, why) in [
        ("guest.json guest/beside-close-guest", "nothing to show"),
        ("guest.json guest/guest-kernels", "nothing to show"),
        ("kernels.json guest/guest-ratios", "nothing to show"),
        ("a.json guest/guest-ratios", "no results of a guest"),
        (
            "guest.json guest/beside-nobody",
            "there is no comparison nobody",
        ),
    ] {
        let refused = made_of_guests(marker).unwrap_err();
        assert!(refused.contains(why), "{marker}: {refused}");
    }
}

#[test]
fn the_newest_run_that_has_it_stands_beside_what_was_published() {
    let directory = tempfile::tempdir().unwrap();
    let made = |marker: &str| {
        let text = format!("<!-- bench: {marker} -->\n<!-- end -->\n");
        with_tables(&text, directory.path())
    };
    let marker = "*.json published/beside-ring";
    assert!(made(marker).unwrap().contains("Not measured yet"));
    // Of rows that no run has.
    let rows = made("*.json published/ratios rows=open-close").unwrap();
    assert!(rows.contains("Not measured yet"));
    assert!(made("*.json published/beside-nobody").is_err());
    let run = |name: &str, started: u64, milliseconds: u64, row: &str| {
        let time = milliseconds * 1_000_000;
        let mut results = sample::Builder::new()
            .contestants(&[("dev", Kind::Ours), ("ring", Kind::Ours)])
            .cell(row, "dev", &[2 * time, 2 * time])
            .cell(row, "ring", &[time, time])
            .results();
        "published".clone_into(&mut results.suite);
        results.started = started;
        let text = results.to_json().unwrap();
        std::fs::write(directory.path().join(name), text).unwrap();
    };
    run("b.json", 1, 1, "create");
    run("d.json", 4, 9, "create");
    // Less than the whole work was done.
    let whole = std::fs::read_to_string(directory.path().join("d.json")).unwrap();
    let part = whole.replace("\"--suite\"", "\"--percent\",\"5\",\"--suite\"");
    assert_ne!(whole, part);
    std::fs::write(directory.path().join("d.json"), part).unwrap();
    run("c.json", 3, 1, "stat-warm");
    run("a.json", 2, 2, "create");
    let text = made(marker).unwrap();
    // The newest of those that have it.
    let (old, new) = ("| create, per second | 3944 |", "(2.00) |");
    assert!(text.contains(old) && text.contains(new), "{text}");
    let of_newest = made("a.json published/beside-ring").unwrap();
    let table = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("| create"))
            .collect::<String>()
    };
    assert_eq!(table(&text), table(&of_newest));
    assert_ne!(
        table(&text),
        table(&made("b.json published/beside-ring").unwrap())
    );
    assert!(
        made("*.json published/beside-killpriv")
            .unwrap()
            .contains("Not measured yet")
    );
}
