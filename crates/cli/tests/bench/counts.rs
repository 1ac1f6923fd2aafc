//! Counting for a mount that existed before the run: its server is outside of the run's namespace.

use crate::ground::{Ground, THRUFS, run, skipped, succeeded};
use serde_json::Value;
use std::fs;
use std::process::Command;

#[test]
fn requests_and_system_calls_of_an_existing_mount_are_counted() {
    let _alone = crate::alone();
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&["-o", "cache=always,transport=dev"]));
    let out = ground.path().join("out");
    let mut command = Command::new(THRUFS);
    command.arg("bench").arg(&ground.src);
    command.args(["--rows", "stat-cold", "--modes", "none", "--jobs", "1"]);
    command.args(["--rounds", "1", "--percent", "1", "--against"]);
    command.arg(format!("other={}", ground.mnt.display()));
    succeeded(&run(command.arg("--out").arg(&out)));
    let text = fs::read_to_string(out.join("results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let remarks = results["remarks"].to_string();
    if remarks.contains("tracefs") {
        return skipped(&remarks);
    }
    let cells = results["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["contestant"] == "other");
    let counts = &cell.unwrap()["counts"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{counts}"));
    let operations = number(&counts["operations"]);
    // Each name takes a LOOKUP, which takes at least three system calls.
    assert!(number(&counts["requests"]["LOOKUP"]) >= operations);
    assert!(number(&counts["system_calls"]) >= 3 * operations);
    let native = cells.iter().find(|cell| cell["contestant"] == "native");
    assert!(native.unwrap()["counts"].is_null());
}
