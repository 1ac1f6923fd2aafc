//! `thrufs bench`: what it measures, which targets it takes, where it refuses, and that nothing of it stays. The benchmark
//! is of another package: `cargo xtask test bench` builds it, `cargo test` of this one takes it as it is.
#![allow(clippy::unwrap_used)]

#[path = "../ground/mod.rs"]
mod ground;

use crate::ground::prelude::*;
use ground::{
    Foreground, Ground, THRUFS, fails, is_mount, run, skipped, stderr, stdout, succeeded, thrufs,
    wait_for,
};
use rustix::mount::{MountFlags, mount};
use rustix::process::kill_process_group;
use std::ffi::CString;
use std::thread::sleep;

/// A short run.
const LITTLE: [&str; 6] = ["--percent", "2", "--rows", ROWS, "--modes", "dev"];
const ROWS: &str = "mkdir,stat-cold,random-read-4k-loop";

/// A run that does not end by itself.
const ENDLESS: [&str; 4] = ["--rounds", "1000", "--time", "100000"];

/// A directory on its own file system, to be measured.
struct Place {
    ground: Ground,
    out: PathBuf,
}

impl Place {
    fn new() -> Option<Place> {
        let ground = Ground::new()?;
        let place = Place {
            out: ground.path().join("out"),
            ground,
        };
        tmpfs(&place.ground.src, "size=2G", MountFlags::empty());
        Some(place)
    }

    fn directory(&self) -> &Path {
        &self.ground.src
    }

    fn bench(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(THRUFS);
        command.arg("bench").arg(self.directory()).args(arguments);
        command.arg("--out").arg(&self.out).stdin(Stdio::null());
        command
    }

    /// A short run that succeeds.
    fn measures(&self, arguments: &[&str]) {
        succeeded(&run(self.bench(&LITTLE).args(arguments)));
    }

    /// An endless short run in its own process group.
    fn start(&self) -> Foreground {
        let said = self.ground.path().join("said");
        let mut command = self.bench(&LITTLE);
        command.args(ENDLESS).process_group(0).stdout(Stdio::null());
        let child = command.stderr(File::create(&said).unwrap()).spawn();
        Foreground::of(child.unwrap()).logging_to(said)
    }

    fn results(&self) -> Value {
        let text = fs::read_to_string(self.out.join("results.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    /// Waits until no process, mount or file of a run is left.
    fn assert_nothing_left(&self, why: &str) {
        let what = format!("everything to go after {why}");
        wait_for(&what, || self.processes().is_empty());
        wait_for(&what, || self.remains().is_empty());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(".thrufs-bench"), "{why}: {mounts}");
    }

    fn remains(&self) -> Vec<PathBuf> {
        let places = [self.directory(), self.ground.path()];
        let entries = places
            .into_iter()
            .flat_map(|place| fs::read_dir(place).unwrap());
        let paths = entries.map(|entry| entry.unwrap().path());
        let is_one = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with(".thrufs-bench")
        };
        paths.filter(is_one).collect()
    }

    /// The processes of a run, identified by the path in their arguments, and their roles.
    fn processes(&self) -> Vec<(Pid, String)> {
        let place = self.ground.path().to_str().unwrap();
        let mut found = ground::command_lines();
        found.retain(|(process, line)| {
            let is_ours = line.iter().any(|word| word.contains(place));
            is_ours && *process != rustix::process::getpid()
        });
        let role = |line: Vec<String>| {
            let words: Vec<&str> = line.iter().map(String::as_str).collect();
            let role = match words[..] {
                [_, "--bench", role, ..] => role,
                [program, ..] if program.ends_with("thrufs-bench") => "bench",
                [_, role, ..] => role,
                _ => "",
            };
            role.to_owned()
        };
        let found = found.into_iter();
        found.map(|(process, line)| (process, role(line))).collect()
    }

    /// Waits for a process of a run in this role.
    fn process(&self, role: &str) -> Pid {
        let mut found = None;
        wait_for(&format!("{role} to run"), || {
            let all = self.processes();
            found = all.into_iter().find(|(_, is)| is == role);
            found.is_some()
        });
        found.unwrap().0
    }
}

/// A stopped process, continued on drop, also when its test fails.
struct Stopped(Pid);

impl Stopped {
    fn now(process: Pid) -> Stopped {
        kill_process(process, Signal::STOP).unwrap();
        Stopped(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn tmpfs(point: &Path, options: &str, flags: MountFlags) {
    let options = CString::new(options).unwrap();
    mount("tmpfs", point, "tmpfs", flags, options.as_c_str()).unwrap();
}

fn names(value: &Value) -> Vec<&str> {
    let all = value.as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn run_measures_every_cell_and_writes_its_report() {
    let Some(place) = Place::new() else { return };
    // No time, for which there are three rounds.
    let options = ["--time", "1", "--cache", "auto,always", "--jobs", "1,2"];
    place.measures(&options);
    place.assert_nothing_left("its end");
    let results = place.results();
    assert_eq!(results["ending"], "complete");
    let targets = ["native", "dev:auto", "dev:always"];
    assert_eq!(names(&results["contestants"]), targets);
    let asked = results["contestants"][1]["options"].as_str().unwrap();
    assert!(asked.contains("nopassthrough,cache=auto"), "{asked}");
    let cells = results["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3 * targets.len() * 2);
    for cell in cells {
        assert_eq!(cell["lower"], "tmpfs");
        let samples = cell["samples"].as_array().unwrap().iter();
        let rounds: Vec<_> = samples.map(|sample| &sample["round"]).collect();
        assert_eq!(rounds[..3], [0, 1, 2], "{cell}");
    }
    assert_eq!(results["command"][1], "bench");
    let version = &results["machine"]["versions"]["thrufs"];
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let report = fs::read_to_string(place.out.join("report.txt")).unwrap();
    for part in ["dev:always", "stat-cold × 2", " interleaved rounds"] {
        assert!(report.contains(part), "{report}");
    }
    // An existing report is not overwritten, but compared with.
    let again = run(&mut place.bench(&LITTLE));
    fails(&again, 1, "nothing is overwritten");
    let then = place.ground.path().join("then");
    fs::rename(&place.out, &then).unwrap();
    let file = then.join("results.json");
    let file = file.to_str().unwrap();
    let mut command = place.bench(&LITTLE);
    let output = run(command.args(options).args(["--compare", file]));
    succeeded(&output);
    let said = stdout(&output);
    let table = said.split("shares of native then and now").nth(1);
    let table = table.unwrap_or_else(|| panic!("{said}"));
    for row in ROWS.split(',') {
        let is_it = |line: &str| line.starts_with(row) && line.contains("dev");
        assert!(table.lines().any(is_it), "{row}: {table}");
    }
}

#[test]
fn other_mounts_are_measured_on_the_same_tree_and_their_own() {
    let Some(place) = Place::new() else { return };
    // One of them has the directory beneath its root.
    let (source, point) = (place.ground.path(), &place.ground.mnt);
    succeeded(&thrufs!("mount", source, point));
    let other = place.ground.path().join("other");
    fs::create_dir(&other).unwrap();
    tmpfs(&other, "size=1G", MountFlags::empty());
    let same = format!("same={}", place.ground.mnt.display());
    let separate = format!("separate={}", other.display());
    let mut command = place.bench(&["--against", &same, "--against", &separate]);
    command.args(["--percent", "2", "--rounds", "2", "--rows", ROWS]);
    succeeded(&run(command.args(["--modes", "none"])));
    let results = place.results();
    assert_eq!(
        names(&results["contestants"]),
        ["native", "same", "separate"]
    );
    for cell in results["cells"].as_array().unwrap() {
        assert_eq!(cell["samples"].as_array().unwrap().len(), 2, "{cell}");
    }
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    ground::unmount_by_command(&place.ground.mnt);
    place.assert_nothing_left("its end");
}

#[test]
fn bench_refuses_a_disk_too_small_and_file_systems_without_files() {
    let Some(place) = Place::new() else { return };
    let [small, constant] = ["small", "constant"].map(|name| place.ground.path().join(name));
    for (point, flags) in [
        (&small, MountFlags::empty()),
        (&constant, MountFlags::RDONLY),
    ] {
        fs::create_dir(point).unwrap();
        tmpfs(point, "size=8M", flags);
    }
    let file = place.ground.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = |directory: &Path, arguments: &[&str], why| {
        let mut command = Command::new(THRUFS);
        command.arg("bench").arg(directory).args(arguments);
        fails(&run(command.arg("--out").arg(&place.out)), 1, why)
    };
    for (directory, why) in [
        (small.as_path(), "MiB free"),
        (&constant, "read-only"),
        (&file, "not a directory"),
        (Path::new("/proc"), "on proc"),
        (Path::new("/not/there"), "No such file"),
    ] {
        let said = refused(directory, &[], why);
        assert!(!said.contains("stays"), "nothing was made: {said}");
    }
    let nowhere = format!("nowhere={}", place.ground.mnt.display());
    for (option, value, why) in [
        ("--against", nowhere.as_str(), "nothing is mounted there"),
        ("--rows", "nought", "no row nought; `thrufs bench --list`"),
        ("--modes", "none", "no target to compare with"),
    ] {
        refused(place.directory(), &["--percent=5", option, value], why);
    }
    assert!(!place.out.exists());
    place.assert_nothing_left("refusals");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
}

#[test]
#[ignore = "soak: at moments that are drawn"]
fn sigint_ends_a_run_with_a_report_of_its_figures() {
    let Some(place) = Place::new() else { return };
    // A measurement or server that is killed fails alone.
    for (signal, code, killed) in [
        (Signal::INT, 130, ""),
        (Signal::TERM, 143, ""),
        (Signal::HUP, 129, ""),
        (Signal::INT, 130, "row"),
        (Signal::INT, 130, "--worker"),
        (Signal::INT, 130, "mount"),
    ] {
        let running = place.start();
        // Something has been measured when the second measurement starts. A server that ends before its first is
        // left out.
        place.process("row");
        if !killed.is_empty() {
            let _ = kill_process(place.process(killed), Signal::KILL);
        }
        sleep(Duration::from_secs(1));
        running.signal(signal);
        let said = running.ends(code);
        place.assert_nothing_left(&format!("{signal:?} {killed}"));
        if place.out.exists() {
            assert_eq!(place.results()["ending"], "interrupted");
            fs::remove_dir_all(&place.out).unwrap();
        } else {
            assert!(said.contains("nothing was measured"), "{said}");
        }
    }
    // The second signal ends it without a report.
    let running = place.start();
    place.process("row");
    running.signal(Signal::INT);
    let _ = kill_process(running.pid(), Signal::INT);
    running.ends(130);
    place.assert_nothing_left("two signals");
}

#[test]
fn a_mount_unmounted_during_a_run_is_not_kept_by_the_run() {
    let Some(place) = Place::new() else { return };
    succeeded(&place.ground.mount(&[]));
    let running = place.start();
    place.process("row");
    // Its server ends too: the namespace of the run does not keep the mount.
    let output = thrufs!("unmount", &place.ground.mnt);
    running.signal(Signal::INT);
    running.ends(130);
    succeeded(&output);
    place.assert_nothing_left("a run during which something was unmounted");
}

#[test]
#[ignore = "soak: at moments that are drawn"]
fn bench_removes_its_mounts_and_files_after_sigkill() {
    let Some(place) = Place::new() else { return };
    let mut moment = 7_u64;
    let mut some_time = move || {
        moment = moment
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((moment >> 33) % 1200)
    };
    for round in 0..3 {
        for role in ["bench", "clean-up", "inside", "group"] {
            let why = format!("{role} was killed, round {round}");
            let running = place.start();
            let moment = some_time();
            if role == "group" {
                sleep(moment);
                kill_process_group(running.pid(), Signal::KILL).unwrap();
            } else {
                let process = place.process(role);
                sleep(moment);
                kill_process(process, Signal::KILL).unwrap();
            }
            let (code, said) = running.wait();
            assert_ne!(code, Some(0), "{why}: {said}");
            place.assert_nothing_left(&why);
            assert!(!place.out.exists(), "{why}");
        }
    }
}

#[test]
#[ignore = "soak: waits for a time"]
fn a_run_whose_front_was_killed_writes_no_report() {
    let Some(place) = Place::new() else { return };
    let running = place.start();
    place.process("row");
    // Until there are results.
    sleep(Duration::from_secs(2));
    let cleanup = Stopped::now(place.process("clean-up"));
    running.signal(Signal::KILL);
    wait_for("the run to end", || {
        let all = place.processes();
        !all.iter().any(|(_, role)| role == "inside")
    });
    assert!(!place.out.exists());
    drop(cleanup);
    running.wait();
    place.assert_nothing_left("it was abandoned");
}

#[test]
#[ignore = "soak: at moments that are drawn"]
fn the_next_run_removes_the_scratch_folder_of_a_run_killed_as_a_whole() {
    let Some(place) = Place::new() else { return };
    let running = place.start();
    place.process("inside");
    // All in one moment: no process is left to clean up.
    for (process, _) in place.processes() {
        let _ = kill_process(process, Signal::STOP);
    }
    for (process, _) in place.processes() {
        let _ = kill_process(process, Signal::KILL);
    }
    running.wait();
    wait_for("the processes to end", || place.processes().is_empty());
    assert_eq!(place.remains().len(), 1);
    // A folder of another user with such a name, and one that is alive, stay.
    let foreign = place.directory().join(".thrufs-bench-foreign");
    fs::create_dir(&foreign).unwrap();
    place.measures(&["--rounds", "1"]);
    assert_eq!(place.remains(), [foreign]);
}

/// As an ordinary user that can open `/dev/fuse`.
const AS_USER: &str = r#"
    set -e
    point=$(mktemp -d)
    mount -t tmpfs -o dev,mode=755 tmpfs "$point"
    mknod -m 666 "$point/fuse" c 10 229
    mount --bind "$point/fuse" /dev/fuse
    umount -l "$point"
    rmdir "$point"
    exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"#;

#[test]
fn an_ordinary_user_gets_figures_and_reasons_for_what_is_missing() {
    let Some(place) = Place::new() else { return };
    // The build directory may be accessible to root only.
    let program = ground::copied_with_benchmark(place.ground.path());
    let own = place.directory().join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(65534), Some(65534)).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", AS_USER, "sh"]);
    command.arg(&program);
    command.current_dir(&own).arg("bench").args(LITTLE);
    let output = run(command.args(["--modes", "dev+pt", "--rounds", "2", "--out", "out"]));
    let said = stderr(&output);
    if said.contains("no target to compare with") && said.contains("/dev/fuse") {
        skipped(&format!("mounting as an ordinary user: {said}"));
        return;
    }
    succeeded(&output);
    let text = fs::read_to_string(own.join("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    let absent = results["contestants"][2]["absent"].as_str().unwrap();
    assert!(absent.contains("passthrough is off"), "{absent}");
    let remarks = results["remarks"].to_string();
    assert!(remarks.contains("cannot drop"), "{remarks}");
    let mut cells = results["cells"].as_array().unwrap().iter();
    let is_it = |cell: &Value| cell["contestant"] == "dev" && cell["row"] == "stat-cold";
    assert!(cells.any(is_it));
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
    place.assert_nothing_left("its end");
    assert!(!is_mount(&own));
}
