//! Many processes use one file under rules that change its data path.

use crate::samples;
use crate::served::{NOTHING, REDACT, Served, put, with_policy};
use thrufs_tests::connection::AbortOnPanic;
use thrufs_tests::connection::Connection;
use thrufs_tests::prelude::*;

const PROCESSES: usize = 16;

fn duration() -> Duration {
    Duration::from_secs(thrufs_test_report::number("THRUFS_RACE_SECONDS", 10))
}

fn rule(rest: &str) -> String {
    format!("[[rule]]\npath = '**'\n{rest}\n")
}

/// The policies in turn, with whether each always redacts the file.
fn policies() -> Vec<(String, bool)> {
    let free = |policy: String| (policy, false);
    vec![
        (REDACT.to_owned(), true),
        free(NOTHING.to_owned()),
        (
            format!("{}{REDACT}", rule("action = 'read-only'\nsize = '>1GiB'")),
            true,
        ),
        free(rule("action = 'cached'")),
        free(rule("action = 'direct'")),
        (REDACT.to_owned(), true),
        free(rule("action = 'deny'\nerrno = 'EPERM'")),
        free(rule("action = 'cached'\nmode = 'o+r'")),
    ]
}

fn fill(source: &Path) {
    put(source, "photos/a", &samples::photograph());
}

fn race(served: &Served) {
    let base = served.ground().base();
    let (state, original) = (base.join("state"), base.join("original"));
    let say = |text: &str| {
        fs::write(base.join("state.new"), text).unwrap();
        fs::rename(base.join("state.new"), &state).unwrap();
    };
    fs::write(&original, samples::photograph()).unwrap();
    say("0 free");
    let _abort = AbortOnPanic(Connection::of(served.ground().mnt()));
    let first_seed = thrufs_test_report::seed();
    let mut racers: Vec<Process> = (0..PROCESSES)
        .map(|number| {
            let (directory, seed) = (
                served.at("photos"),
                (first_seed + number as u64).to_string(),
            );
            let [directory, original, state] =
                [&directory, &original, &state].map(|path| path.to_str().unwrap());
            programs::start_helper(&["policy-race", directory, original, state, &seed])
        })
        .collect();
    let (start, duration) = (Instant::now(), duration());
    let mut generation = 1;
    while start.elapsed() < duration {
        for (policy, redacts) in policies() {
            say(&format!("{generation} changing"));
            served.reload(&policy);
            say(&format!(
                "{generation} {}",
                if redacts { "redacting" } else { "free" }
            ));
            thread::sleep(Duration::from_millis(60));
            generation += 1;
        }
    }
    say("end");
    let mut checked = 0;
    for racer in &mut racers {
        let said = racer.line();
        let count = said.strip_prefix("ok ").unwrap_or_else(|| panic!("{said}"));
        checked += count.parse::<u64>().unwrap();
        assert!(
            racer.is_ended_within(Duration::from_secs(60)),
            "{}",
            racer.place()
        );
    }
    assert!(checked > 0, "no open was looked at");
    served.reload(NOTHING);
    let beneath = ["a", "b"].map(|name| served.beneath("photos").join(name));
    let bytes = beneath.iter().find_map(|path| fs::read(path).ok()).unwrap();
    assert!(bytes.starts_with(&samples::photograph()), "changed beneath");
}

const MODES: [&str; 4] = [
    "cache=auto",
    "cache=always",
    "cache=never",
    "cache=always,nopassthrough",
];

#[test]
#[ignore = "soak: which processes meet is a matter of luck"]
fn nothing_is_shown_and_nothing_fails_while_policies_change() {
    for options in MODES {
        with_policy(options, NOTHING, fill, race);
    }
}
