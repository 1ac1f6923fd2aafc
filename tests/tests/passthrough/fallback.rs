//! Files without passthrough are cached, and the log says why, once.

use rustix::mount::MountFlags;
use std::ffi::CString;
use thrufs_tests::prelude::*;

fn use_files(dir: &Path) {
    for at in 0..5 {
        let path = dir.join(format!("file-{at}"));
        let mut file = File::create(&path).unwrap();
        file.write_all(b"content").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"content");
    }
}

/// The worker's log comes through the supervisor, soon.
#[track_caller]
fn said_once(log: impl Fn() -> String, reason: &str) {
    wait_until(reason, || log().contains(reason));
    let log = log();
    assert_eq!(log.matches(reason).count(), 1, "\"{reason}\" in:\n{log}");
}

const ALL: &str = "passthrough is off: ";

#[test]
fn with_writeback() {
    over_each(|transport| {
        let mounted = Mounted::start_on(Lower::Tmpfs, &transport.with("writeback")).unwrap();
        use_files(mounted.mnt());
        said_once(|| mounted.log_text(), ALL);
        said_once(|| mounted.log_text(), "together with writeback");
    });
}

#[test]
fn nopassthrough_logs_nothing() {
    over_each(|transport| {
        let mounted = Mounted::start_on(Lower::Tmpfs, &transport.with("nopassthrough")).unwrap();
        use_files(mounted.mnt());
        assert!(!mounted.log_text().contains("passthrough is off"));
    });
}

/// Root of a user namespace of its own may mount and has CAP_SYS_ADMIN, but not in the initial one.
#[test]
fn without_privilege() {
    let unshare = ["-r", "-m", "--propagation", "private"];
    let possible = Command::new("unshare").args(unshare).arg("true").status();
    skip_if!(must_skip());
    if !possible.is_ok_and(|status| status.success()) {
        return skipped("no user namespaces, or no unshare(1)");
    }
    for transport in ["dev", "uring"] {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let script = r#"
            "$1" mount -f -o "transport=$4" "$2" "$3" & server=$!
            for _ in $(seq 200); do mountpoint -q "$3" && break; sleep 0.05; done
            for name in one two; do echo content > "$3/$name" && cat "$3/$name"; done
            kill $server; wait $server"#;
        let output = Command::new("unshare")
            .args(unshare)
            .args(["sh", "-c", script, "sh"])
            .arg(programs::thrufs().unwrap())
            .args([ground.source(), ground.mnt()])
            .arg(transport)
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("content\ncontent\n"), "{text}{log}");
        let all = || format!("{text}{log}");
        said_once(all, ALL);
        said_once(all, "CAP_SYS_ADMIN in the initial user namespace");
        assert_eq!(fs::read(ground.source().join("two")).unwrap(), b"content\n");
    }
}

/// The source is a plain file system, so the mount allows for one layer; a submount has two.
#[test]
fn on_a_submount_that_is_stacked_deeper() {
    over_each(|transport| {
        let mounted = Mounted::start_on(Lower::Tmpfs, &transport.with("")).unwrap();
        let sub = mounted.source().join("sub");
        for layer in ["sub", "below", "above", "work"] {
            fs::create_dir(mounted.source().join(layer)).unwrap();
        }
        let at = mounted.source().display();
        let data = format!("lowerdir={at}/below,upperdir={at}/above,workdir={at}/work");
        let data = CString::new(data).unwrap();
        let flags = MountFlags::empty();
        rustix::mount::mount("thrufs-test", &sub, "overlay", flags, data.as_c_str()).unwrap();
        let _submount = Detach(&sub);
        use_files(&mounted.mnt().join("sub"));
        use_files(mounted.mnt());
        let log = || mounted.log_text();
        said_once(log, "passthrough is off for files on a lower mount");
        said_once(log, "stacked on others too deep");
        assert_eq!(fs::read(sub.join("file-0")).unwrap(), b"content");
    });
}

/// How many RELEASEs were answered.
fn released(mnt: &Path) -> u64 {
    let text = programs::ctl(mnt, "statistics");
    let mut lines = text.lines();
    let count = lines.find_map(|line| line.strip_prefix("RELEASE ")?.split_whitespace().next());
    count.map_or(0, |count| count.parse().unwrap())
}

/// A FUSE file system beneath does part of its work at close(2).
#[test]
fn on_a_fuse_file_system() {
    over_each(|transport| {
        let ground = Ground::prepare(Lower::Default).unwrap();
        let source = ground.source().to_str().unwrap();
        let other = Process::start(&programs::slow_files(), &[source]);
        let beneath = Detach(ground.source());
        assert_eq!(other.line(), "ok");
        let server = Server::start(&ground, &transport.with(""), None);
        for name in ["file-0", "file-1"] {
            drop(File::open(ground.mnt().join(name)).unwrap());
        }
        said_once(|| server.log_text(), "part of its work at close(2)");
        // The server closes the files beneath when they are released. At its end it waits for that for five
        // seconds alone, and on a busy machine the file system there may take longer.
        wait_until("released", || released(ground.mnt()) == 2);
        server.stop();
        other.finish();
        drop(beneath);
    });
}
