//! A case that is known to be slow is found by `thrufs bench`, and shown in every form of its report.

use crate::ground::{Ground, THRUFS, stderr};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output, Stdio};

/// What it takes to be slow whatever else the machine does, in microseconds.
const SLOWNESS: &str = "20000";

/// A few rows, each of other requests, with little work.
fn bench(ground: &Ground, inject: &[&str]) -> Output {
    let mut command = Command::new(THRUFS);
    command
        .arg("bench")
        .arg(&ground.src)
        .args(["--rows", "stat-cold,open-close,unlink,mkdir"])
        .args(["--modes", "dev+pt", "--jobs", "1"])
        .args(["--rounds", "3", "--percent", "1"])
        .args(inject)
        .arg("--out")
        .arg(ground.path().join("out"))
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn report(ground: &Ground, name: &str) -> String {
    fs::read_to_string(ground.path().join("out").join(name)).unwrap()
}

#[test]
#[ignore = "soak: a finding of statistics"]
fn what_is_made_slow_stands_out() {
    let _alone = crate::alone();
    let Some(ground) = Ground::new() else {
        return;
    };
    let inject = format!("MKDIR={SLOWNESS}");
    let output = bench(&ground, &["--inject", &inject]);
    assert!(output.status.success(), "{}", stderr(&output));
    let found = report(&ground, "report.txt");
    let found: Vec<&str> = found
        .lines()
        .filter(|line| line.contains("mkdir") && line.contains("slow:MKDIR"))
        .collect();
    // As one of the findings, which say how long a request takes, and not only in the table.
    assert!(
        found.iter().any(|line| line.contains(" ms")),
        "{found:#?}\n{}",
        report(&ground, "report.txt")
    );
    let page = report(&ground, "report.html");
    let finding = page.lines().find(|line| line.contains("class=\"finding\""));
    let finding = finding.expect("a finding on the page");
    assert!(
        finding.contains("mkdir") && finding.contains("slow"),
        "{finding}"
    );
    assert!(!page.contains("<b>stat-cold</b> on <b>slow"), "{page}");
}

#[test]
fn what_cannot_be_made_slow_is_refused() {
    let Some(ground) = Ground::new() else {
        return;
    };
    let output = bench(&ground, &["--inject", "NONE=1"]);
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(said.contains("OPCODE=MICROSECONDS"), "{said}");
}

#[test]
fn every_cell_is_counted_and_its_latencies_are_taken_when_rounds_take_all_the_time() {
    let _alone = crate::alone();
    let Some(ground) = Ground::new() else {
        return;
    };
    let mut command = Command::new(THRUFS);
    command
        .arg("bench")
        .arg(&ground.src)
        // What is left of the files is removed as slowly: a round takes longer than all may.
        .args(["--rows", "unlink", "--percent", "5", "--inject", "UNLINK=5000"])
        .args(["--modes", "dev", "--jobs", "1", "--time", "2"])
        .arg("--out")
        .arg(ground.path().join("out"))
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let results: Value = serde_json::from_str(&report(&ground, "results.json")).unwrap();
    let remarks = results["remarks"].to_string();
    let counts = !remarks.contains("were not counted");
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3);
    for cell in cells {
        assert!(
            cell["latency"]["operations"].as_u64() > Some(0),
            "{cell} {remarks}"
        );
        let is_counted = cell["contestant"] != "native" && counts;
        assert_eq!(cell["counts"].is_object(), is_counted, "{cell} {remarks}");
    }
    assert!(
        remarks.contains("of fewer operations than usual"),
        "{remarks}"
    );
}
