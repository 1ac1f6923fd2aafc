//! A share under a policy whose worker is killed: the rules hold before and after.

use super::{Root, mount, replace};
use crate::ground::prelude::*;
use crate::ground::share::Place;

const RULES: &str = r#"audit-log = "LOG"
[[rule]]
path = "audited"
action = "audit"
[[rule]]
path = "**/hidden*"
action = "hide"
[[rule]]
path = "denied"
action = "deny"
[[rule]]
path = "kept/**"
action = "read-only"
"#;

fn write_rules(place: &Place, rules: &str) {
    let log = place.path("audit.log");
    let rules = rules.replace("LOG", log.to_str().unwrap());
    fs::write(place.path("policy.toml"), rules).unwrap();
}

/// Nodes that were looked up before all deaths.
struct Known {
    denied: NodeId,
    kept: NodeId,
    audited: NodeId,
}

impl Known {
    fn new(root: &Root<'_>) -> Known {
        let node = |path| root.walk(path).unwrap();
        Known {
            denied: node("denied"),
            kept: node("kept/x"),
            audited: node("audited"),
        }
    }

    /// Accesses every file once. One of the opens is audited.
    fn ask(&self, root: &Root<'_>) {
        let refused = |node, flags| root.open(node, flags).map(|open| open.fh);
        assert_eq!(refused(self.denied, libc::O_RDONLY), Err(Errno::EACCES));
        assert_eq!(refused(self.kept, libc::O_RDWR), Err(Errno::EROFS));
        for path in ["hidden", "kept/hidden-too"] {
            assert_eq!(root.walk(path), Err(Errno::ENOENT));
        }
        let kept = root.walk("kept").unwrap();
        let listed = root.list(kept, true).unwrap();
        assert!(listed.iter().all(|entry| !entry.name.starts_with(b"hid")));
        let audited = root.open(self.audited, libc::O_RDONLY).unwrap().fh;
        let read = root.read(self.audited, audited, 0, 100);
        assert_eq!(read.unwrap(), b"content");
        root.release(self.audited, audited).unwrap();
    }
}

/// The active policy is the one that was loaded, not the current content of the file.
#[test]
fn next_worker_applies_the_active_policy() {
    let place = Place::new();
    fs::create_dir(place.dir.join("kept")).unwrap();
    for name in ["audited", "hidden", "kept/hidden-too", "denied", "kept/x"] {
        fs::write(place.dir.join(name), "content").unwrap();
    }
    write_rules(&place, RULES);
    let policy = place.path("policy.toml");
    let options = format!("control=none,seccomp=kill,policy={}", policy.display());
    let server = place.share_with_log(&options);
    let client = mount(&place);
    let root = client.root();
    let known = Known::new(&root);
    // No reload was requested, so neither text takes effect.
    for (round, text) in ["", "nonsense"].into_iter().enumerate() {
        fs::write(&policy, text).unwrap();
        replace(&place);
        known.ask(&root);
        let log = fs::read_to_string(place.path("audit.log")).unwrap();
        assert_eq!(log.matches("\"opened\"").count(), round + 1, "{log}");
    }
    // A reload reaches the serving worker and the one on standby.
    let stricter = format!("{RULES}\n[[rule]]\npath = \"kept/**\"\naction = \"deny\"\n");
    let kept = root.open(known.kept, libc::O_RDONLY).unwrap().fh;
    write_rules(&place, &stricter);
    server.signal(Signal::HUP);
    wait_for("the reload", || {
        root.open(known.kept, libc::O_RDONLY).is_err()
    });
    // Also in a worker that is started later.
    for _ in 0..3 {
        let opened = root.open(known.kept, libc::O_RDONLY).map(|open| open.fh);
        assert_eq!(opened, Err(Errno::EACCES), "by what is in force");
        let read = root.read(known.kept, kept, 0, 100);
        assert_eq!(read.unwrap(), b"content", "what was granted");
        replace(&place);
    }
}
