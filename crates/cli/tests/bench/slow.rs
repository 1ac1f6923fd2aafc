//! A slow operation is found by `thrufs bench`, and shown in every form of its report.

use crate::ground::{Ground, THRUFS, run, succeeded};
use crate::slowed::Slowed;
use serde_json::Value;
use std::fs;
use std::process::Command;
use std::time::Duration;
use thrufs::MountedSession;
use thrufs::mount::MountOptions;
use thrufs::session::{SessionConfig, Transport};
use thrufs_hostdir::{Config, HostDir, Resources};

/// Mounts the directory in this process, with one slow method.
fn slow(ground: &Ground, method: &'static str, delay: Duration) -> MountedSession {
    let session = SessionConfig {
        transport: Transport::Dev,
        ..SessionConfig::default()
    };
    let slowed = Slowed {
        inner: HostDir::open(&ground.src, Config::default(), Resources::default()).unwrap(),
        method,
        delay,
    };
    thrufs::mount(slowed, &ground.mnt, &MountOptions::new("slowed"), session).unwrap()
}

fn bench(ground: &Ground, arguments: &[&str]) {
    let mut command = Command::new(THRUFS);
    command.arg("bench").arg(&ground.src).arg("--against");
    command.arg(format!("slow={}", ground.mnt.display()));
    command.args(["--jobs", "1"]).args(arguments).arg("--out");
    succeeded(&run(command.arg(ground.path().join("out"))));
}

fn report(ground: &Ground, name: &str) -> String {
    fs::read_to_string(ground.path().join("out").join(name)).unwrap()
}

#[test]
#[ignore = "soak: a finding of statistics"]
fn a_slowed_request_stands_out_in_the_report() {
    let _alone = crate::alone();
    let Some(ground) = Ground::new() else { return };
    // Long enough to be slow on a busy machine.
    let _mounted = slow(&ground, "mkdir", Duration::from_millis(20));
    // A few rows with different requests and little work.
    let rows = "stat-cold,open-close,unlink,mkdir";
    let few = ["--rounds", "3", "--percent", "1", "--modes", "dev+pt"];
    bench(&ground, &[&["--rows", rows], few.as_slice()].concat());
    let text = report(&ground, "report.txt");
    // As a finding, which has the time of a request, not only in the table.
    let is_it = |line: &str| line.contains("mkdir on slow") && line.contains(" ms");
    assert!(text.lines().any(is_it), "{text}");
    let page = report(&ground, "report.html");
    let finding = page.lines().find(|line| line.contains("class=\"finding\""));
    let finding = finding.expect("a finding on the page");
    for part in ["mkdir", "slow"] {
        assert!(finding.contains(part), "{finding}");
    }
    assert!(!page.contains("<b>stat-cold</b> on <b>slow"), "{page}");
}

#[test]
fn cells_are_counted_and_timed_when_rounds_take_all_the_time() {
    let _alone = crate::alone();
    let Some(ground) = Ground::new() else { return };
    let _mounted = slow(&ground, "unlink", Duration::from_millis(5));
    // Removing the files is as slow: a round takes longer than the time limit.
    let rows = ["--rows", "unlink", "--percent", "5"];
    bench(&ground, &[rows, ["--modes", "dev", "--time", "2"]].concat());
    let results: Value = serde_json::from_str(&report(&ground, "results.json")).unwrap();
    let remarks = results["remarks"].to_string();
    let counts = !remarks.contains("were not counted");
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3);
    for cell in cells {
        let timed = cell["latency"]["operations"].as_u64();
        assert!(timed > Some(0), "{cell} {remarks}");
        let is_counted = cell["contestant"] != "native" && counts;
        assert_eq!(cell["counts"].is_object(), is_counted, "{cell} {remarks}");
    }
    let fewer = "of fewer operations than usual";
    assert!(remarks.contains(fewer), "{remarks}");
}
