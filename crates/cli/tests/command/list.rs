//! What operators see: `thrufs list`, `thrufs ctl` with `metrics` and `health`, and the log as JSON.

use crate::ground::prelude::*;
use crate::ground::share::Place;
use crate::ground::{WITHOUT_OTHERS, stop_process};
use std::collections::BTreeSet;

fn listed(arguments: &[&str]) -> Vec<Value> {
    let output = run(Command::new(THRUFS)
        .args(["list", "--json"])
        .args(arguments));
    succeeded(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn found(all: &[Value], place: &Path) -> Option<Value> {
    let place = place.to_str().unwrap();
    all.iter().find(|it| it["place"] == place).cloned()
}

/// The entry, once its server has answered: on a busy machine that can take longer than it is given.
fn serving(place: &Path) -> Value {
    let mut entry = None;
    wait_for("the server to answer", || {
        entry = found(&listed(&[]), place);
        entry.as_ref().is_some_and(|it| it["state"] == "serving")
    });
    entry.unwrap()
}

fn number(process: Pid) -> Value {
    process.as_raw_nonzero().get().into()
}

#[test]
fn list_shows_mounts_of_every_namespace_and_shares() {
    let (Some(ground), Some(inner)) = (Ground::new(), Ground::new()) else {
        return;
    };
    succeeded(&ground.mount(&["--cache=never", "--nopassthrough", "--transport=dev"]));
    ground.assert_serves();
    let place = Place::new();
    let share = place.share("cache=always");
    let guest = place.mount();
    let script = format!("{WITHOUT_OTHERS}; \"$2\" mount \"$3\" \"$1\" && exec sleep 600");
    let mut other = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
            "sh",
        ])
        .args([&inner.mnt, Path::new(THRUFS), &inner.src])
        .spawn()
        .unwrap();

    let entry = serving(&ground.mnt);
    for (field, expected) in [
        ("kind", "mount".into()),
        ("source", ground.src.to_str().unwrap().into()),
        ("user", 0.into()),
        ("transport", "dev".into()),
        ("passthrough", false.into()),
        ("cache", "never".into()),
        ("follow", Value::Null),
        ("server", number(ground.process("--supervisor"))),
        ("workers", vec![number(ground.process("--worker"))].into()),
        ("is_mounted_here", true.into()),
        ("remedy", Value::Null),
    ] {
        assert_eq!(entry[field], expected, "{field} in {entry}");
    }
    assert!(entry["requests"].as_u64().unwrap() > 1 && entry["age_s"].is_u64());

    let entry = serving(&inner.mnt);
    assert_eq!(entry["is_mounted_here"], false, "{entry}");
    let elsewhere = &entry["elsewhere"][0];
    assert_eq!(elsewhere["path"], inner.mnt.to_str().unwrap());
    // The shell's namespace has the server too; either may have been found first.
    let users = [number(inner.process("--supervisor")), other.id().into()];
    assert!(users.contains(&elsewhere["process"]), "{entry}");
    assert!(elsewhere["processes"].as_u64().unwrap() >= 2, "{entry}");
    assert_eq!(entry["follow"], "filesystem");

    let entry = serving(&place.socket);
    for (field, expected) in [
        ("kind", "share"),
        ("source", place.dir.to_str().unwrap()),
        ("transport", "vhost-user"),
        ("cache", "always"),
    ] {
        assert_eq!(entry[field], expected, "{field} in {entry}");
    }
    // Not the one on standby.
    let workers = entry["workers"].as_array().unwrap();
    assert_eq!(workers.len(), 1, "{entry}");
    assert!(place.workers().iter().any(|it| workers[0] == number(*it)));
    assert_eq!(entry["server"], number(share.pid()));

    the_table_is_100_wide_and_has_rates(&ground);
    guest.unmount();
    share.ends_by(Signal::TERM);
    kill_process(inner.process("--supervisor"), Signal::TERM).unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    inner.wait_ended();
    ground::unmount_by_command(&ground.mnt);
    assert_eq!(found(&listed(&[]), &ground.mnt), None);
}

fn the_table_is_100_wide_and_has_rates(ground: &Ground) {
    let text = stdout(&thrufs!("list"));
    let rows = || text.lines().filter(|line| !line.starts_with("  "));
    assert!(rows().all(|line| line.chars().count() <= 100), "{text}");
    let names: Vec<&str> = rows().next().unwrap().split_whitespace().collect();
    assert_eq!((names[0], names[8]), ("TARGET", "REQUESTS"));
    let worker = ground.process("--worker").as_raw_nonzero().to_string();
    let row = rows().find(|line| line.split(' ').any(|word| word == worker));
    let cells: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!(cells[2..6], ["serving", "dev", "no", "never"], "{text}");

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = thrufs_testing::StopAll(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let _ = fs::metadata(ground.mnt.join("file"));
            }
        });
        wait_for("a rate", || {
            let entry = found(&listed(&["--rates"]), &ground.mnt).unwrap();
            entry["requests_per_s"]
                .as_f64()
                .is_some_and(|rate| rate > 10.0)
        });
    });
}

#[test]
fn servers_that_are_stopped_or_killed_are_told_apart_in_time() {
    let (Some(stopped), Some(killed)) = (Ground::new(), Ground::new()) else {
        return;
    };
    for ground in [&stopped, &killed] {
        succeeded(&ground.mount(&[]));
    }
    let place = Place::new();
    let share = place.share("");
    serving(&place.socket);
    stop_process(share.pid());
    let worker = stopped.process("--worker");
    stop_process(worker);
    kill_process(killed.process("--worker"), Signal::KILL).unwrap();
    killed.wait_dead();

    // None of these ends before the stopped servers go on, if it waits for one.
    let health = |place: &Path| thrufs!("ctl", place, "health");
    let (all, [of_stopped, of_killed, of_share]) = std::thread::scope(|scope| {
        let places = [&stopped.mnt, &killed.mnt, &place.socket];
        let asked = places.map(|place| scope.spawn(move || health(place)));
        (listed(&[]), asked.map(|asked| asked.join().unwrap()))
    });
    let state = |place: &Path| found(&all, place).unwrap()["state"].clone();
    assert_eq!(state(&stopped.mnt), "silent");
    assert_eq!(state(&place.socket), "silent");
    let entry = found(&all, &killed.mnt).unwrap();
    assert_eq!(entry["state"], "dead");
    let remedy = format!("thrufs unmount {}", killed.mnt.display());
    assert_eq!(entry["remedy"], remedy);
    let entry = found(&all, &stopped.mnt).unwrap();
    let process = worker.as_raw_nonzero().to_string();
    assert!(
        entry["remedy"].as_str().unwrap().contains(&process),
        "{entry}"
    );
    for silent in [of_stopped, of_share] {
        fails(&silent, 1, "no answer within 2 s");
    }
    fails(&of_killed, 1, "dead FUSE mount");

    kill_process(worker, Signal::CONT).unwrap();
    share.signal(Signal::CONT);
    for place in [&stopped.mnt, &place.socket] {
        wait_for("it to be healthy", || health(place).status.success());
    }
    let output = thrufs!("ctl", "--json", &killed.mnt, "health");
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["healthy"], false);
    assert!(
        answer["reason"].as_str().unwrap().contains("dead"),
        "{answer}"
    );
    fails(&health(&stopped.src), 1, "not on a thrufs mount");
    fails(&health(&stopped.mnt.join("file")), 1, "not mounted");
    share.ends_by(Signal::TERM);
    for ground in [&stopped, &killed] {
        ground::unmount_by_command(&ground.mnt);
    }
}

/// Samples of OpenMetrics text, by name and labels, checked as the specification has it.
fn metrics(place: &Path) -> Vec<(String, String, f64)> {
    let output = thrufs!("ctl", place, "metrics");
    succeeded(&output);
    let text = stdout(&output);
    let body = text.strip_suffix("# EOF\n").expect("an end");
    let (mut families, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let mut samples = Vec::new();
    for line in body.lines() {
        if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, of) = described.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} in one piece");
            (family, kind) = (name.to_owned(), of.to_owned());
            continue;
        }
        if let Some(said) = line.strip_prefix("# ") {
            let words: Vec<&str> = said.splitn(3, ' ').collect();
            assert!(words.len() == 3 && words[1] == family, "{line}");
            let is_unit = words[0] == "UNIT" && family.ends_with(&format!("_{}", words[2]));
            assert!(is_unit || words[0] == "HELP", "{line}");
            continue;
        }
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.rsplit_once("} ").unwrap();
        let suffix = match kind.as_str() {
            "gauge" => "",
            "counter" => "_total",
            "histogram" => "_bucket",
            other => panic!("{other}"),
        };
        assert_eq!(name, format!("{family}{suffix}"), "{line}");
        assert!(seen.insert(format!("{name}{labels}")), "{line} once");
        let is_named = |label: &str| {
            let (name, value) = label.split_once("=\"").unwrap();
            let plain = |char: char| char.is_ascii_lowercase() || char == '_';
            name.chars().all(plain) && !value.contains('"')
        };
        let labels_are_named = labels.strip_suffix('"').unwrap().split("\",").all(is_named);
        assert!(labels_are_named, "{line}");
        samples.push((name.to_owned(), labels.to_owned(), value.parse().unwrap()));
    }
    buckets_grow(&samples);
    samples
}

/// Each histogram begins anew after its +Inf, up to which its counts and its limits grow.
fn buckets_grow(samples: &[(String, String, f64)]) {
    let mut last = (0.0, 0.0);
    let mut is_ended = true;
    for (_, labels, value) in samples.iter().filter(|it| it.0.ends_with("_bucket")) {
        let end = labels.rsplit_once("le=\"").unwrap().1.trim_end_matches('"');
        let end: f64 = end.trim_start_matches('+').to_lowercase().parse().unwrap();
        if is_ended {
            last = (0.0, 0.0);
        }
        assert!(end > last.0 && *value >= last.1, "{labels} {value}");
        last = (end, *value);
        is_ended = end.is_infinite();
    }
    assert!(is_ended);
}

fn sum(samples: &[(String, String, f64)], name: &str, parts: &[&str]) -> f64 {
    let is_meant = |labels: &str| parts.iter().all(|part| labels.contains(part));
    let meant = samples.iter().filter(|it| it.0 == name && is_meant(&it.1));
    meant.map(|it| it.2).sum()
}

#[test]
fn metrics_are_open_metrics_and_rise_by_the_requests_made() {
    let Some(ground) = Ground::new() else { return };
    succeeded(&ground.mount(&["--cache=never", "--nopassthrough"]));
    let place = Place::new();
    let share = place.share("");
    let guest = place.mount();
    let before = metrics(&ground.mnt);
    for _ in 0..7 {
        fs::metadata(ground.mnt.join("missing")).unwrap_err();
        assert_eq!(fs::read(ground.mnt.join("file")).unwrap().len(), 7);
    }
    let after = metrics(&ground.mnt);
    let rise = |name: &str, parts: &[&str]| sum(&after, name, parts) - sum(&before, name, parts);
    let absent = ["operation=\"LOOKUP\"", "errno=\"ENOENT\""];
    assert_eq!(rise("thrufs_errors_total", &absent), 7.0);
    assert_eq!(
        rise("thrufs_errors_total", &["errno"]),
        7.0,
        "ENOSYS is none"
    );
    assert!(rise("thrufs_requests_total", &["operation=\"LOOKUP\""]) >= 14.0);
    let opens = ["operation=\"OPEN\""];
    assert_eq!(rise("thrufs_requests_total", &opens), 7.0);
    let timed = ["operation=\"OPEN\"", "le=\"+Inf\""];
    assert_eq!(rise("thrufs_request_duration_seconds_bucket", &timed), 7.0);
    assert_eq!(rise("thrufs_data_bytes_total", &["READ"]), 49.0);
    let named = format!(
        "mount=\"{}\",source=\"{}\"",
        ground.mnt.display(),
        ground.src.display()
    );
    assert_eq!(
        sum(&after, "thrufs_info", &[&named, "cache=\"never\""]),
        1.0
    );
    assert!(sum(&after, "thrufs_inodes", &[]) >= 1.0);

    let of_share = metrics(&place.socket);
    assert_eq!(sum(&of_share, "thrufs_machines", &[]), 1.0);
    let init = ["operation=\"INIT\"", "process=\"", "share=\""];
    assert_eq!(sum(&of_share, "thrufs_requests_total", &init), 1.0);
    guest.unmount();
    share.ends_by(Signal::TERM);
    ground::unmount_by_command(&ground.mnt);
}

fn objects(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let objects: Vec<Value> = text
        .lines()
        .map(|it| serde_json::from_str(it).expect(it))
        .collect();
    for object in &objects {
        let time = object["time"].as_str().unwrap();
        assert!(
            time.len() >= 20 && &time[10..11] == "T" && time.ends_with('Z'),
            "{object}"
        );
        assert!(
            object["level"].is_string() && object["message"].is_string(),
            "{object}"
        );
    }
    objects
}

#[test]
fn log_is_json_and_its_file_is_opened_again_on_sighup() {
    let Some(ground) = Ground::new() else { return };
    let [log, old] = ["log", "log.1"].map(|name| ground.path().join(name));
    let options = ["--log-format=json", "--log=debug", "--log-file"];
    succeeded(&ground.mount(&[&options[..], &[log.to_str().unwrap()]].concat()));
    let has = |log: &Path, part: &str| {
        let said = |it: &Value| it["message"].as_str().unwrap().contains(part);
        objects(log).iter().any(said)
    };
    assert!(has(&log, "mounted "));
    fs::rename(&log, &old).unwrap();
    let supervisor = ground.process("--supervisor");
    kill_process(supervisor, Signal::HUP).unwrap();
    wait_for("another file", || log.exists());
    // Of the worker, and not made for JSON.
    kill_process(ground.process("--worker"), Signal::USR1).unwrap();
    wait_for("statistics", || has(&log, "inodes="));
    let of_mount = |it: &Value| {
        let message = it["message"].as_str().unwrap();
        message.starts_with("inodes=") && it["place"] == ground.mnt.to_str().unwrap()
    };
    assert!(objects(&log).iter().any(of_mount));
    ground::unmount_by_command(&ground.mnt);
    assert!(has(&log, "was unmounted"));
    assert!(!has(&old, "inodes=") && !has(&old, "was unmounted"));
}

#[test]
fn failure_of_a_server_that_logs_json_is_an_object() {
    let place = Place::new();
    let mut command = place.command("log_format=json");
    let first = place.share("");
    let output = run(command.stderr(Stdio::piped()));
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    let object: Value = serde_json::from_str(said.trim_end()).expect(&said);
    assert_eq!(object["level"], "ERROR");
    assert!(
        object["message"].as_str().unwrap().contains("listens"),
        "{said}"
    );
    first.ends_by(Signal::TERM);
}
