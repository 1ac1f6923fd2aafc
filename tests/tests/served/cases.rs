//! What rules refuse, as a table of requests.

use super::rules::set;
use rustix::fs::FileType;
use thrufs::Result;
use thrufs_abi::SetattrValid;
use thrufs_hostdir::HostDir;
use thrufs_testing::{Caller, InProcess};
use thrufs_tests::prelude::*;

/// Each answers with another error. `LOG` is the audit log.
pub const RULES: &str = r#"
audit-log = "LOG"
audit-refused = true

[[rule]]
name = "keys"
path = "**/*.key"
action = "hide"

[[rule]]
path = "of-root"
owner = "1000"
action = "hide"

[[rule]]
path = ["denied", "shut", "shut/**"]
action = "deny"
errno = "EBUSY"

[[rule]]
path = "seen/**"
action = "audit"

[[rule]]
path = ["kept/**", "seen/kept"]
action = "read-only"

[[rule]]
path = "photos/**"
action = "redact"
redact = "gps"
errno = "EPERM"

[[rule]]
path = "*"
type = "fifo"
action = "deny"
errno = "EIO"

[[rule]]
path = "films/**"
action = "redact"
redact = "gps"

[[rule]]
path = ["picture", "words"]
content = "image/png"
action = "deny"
errno = "ENXIO"
"#;

/// Changes in a directory in which a rule refuses all. As [`CASES`].
const CHANGES: &str = "
write DIR/x -> NO
both DIR/x -> NO
append DIR/x -> NO
truncating DIR/x -> NO
emptying DIR/x -> NO
chmod DIR/x -> NO
chmod DIR/sub -> NO
chown DIR/x -> NO
utimes DIR/x -> NO
truncate DIR/x -> NO
setxattr DIR/x -> NO
removexattr DIR/x -> NO
setxattr DIR/sub -> NO
rename DIR/x free/new -> NO
rename DIR/x DIR/new -> NO
rename free/x DIR/x -> NO DIR/x
exchange free/x DIR/x -> NO DIR/x
exchange DIR/x free/x -> NO
link DIR/x free/new -> NO
unlink DIR/x -> NO
rmdir DIR/sub -> NO
create DIR/new -> NO
tmpfile DIR -> NO DIR/(unnamed)
mkdir DIR/new -> NO
mknod DIR/new -> NO
mkfifo DIR/new -> NO
symlink DIR/new to -> NO
link free/x DIR/new -> NO DIR/new
rename free/x DIR/new -> NO DIR/new
noreplace free/x DIR/new -> NO DIR/new
rename free/sub DIR/new -> NO DIR/new
";

/// What would make a hidden name, whether there is one or not.
const MAKES: &str = "
create NAME -> EACCES
new NAME -> EACCES
mkdir NAME -> EACCES
mknod NAME -> EACCES
symlink NAME to -> EACCES
link free/x NAME -> EACCES NAME
rename free/x NAME -> EACCES NAME
noreplace free/x NAME -> EACCES NAME
rename free/sub NAME -> EACCES NAME
";

/// An operation, its paths, and the answer; of a refusal by a rule its number, and the path in its record, if that
/// is not the first.
const CASES: &str = "
read shut/x -> EBUSY 3
read shut/sub/inner -> EBUSY 3
opendir shut -> EBUSY 3
opendir shut/sub -> EBUSY 3
read kept/x -> ok
read kept/sub/inner -> ok
opendir kept -> ok
opendir kept/sub -> ok
lookup a.key -> ENOENT 1
lookup plain.key -> ENOENT 1
read plain -> EPERM 6
chmod plain -> ok
rename plain plain.key -> EACCES 1 plain.key
unlink plain.key -> ENOENT 1
write plain -> EPERM 6
unlink a.key -> ENOENT 1
rmdir hides -> ENOTEMPTY
mkdir dir -> EEXIST
read denied -> EBUSY 3
read photos/p -> EPERM 6
write photos/p -> EPERM 6
rename a.key new -> ENOENT 1
rename a fifo -> EIO 7 fifo
exchange a fifo -> EIO 7 fifo
exchange fifo a -> EIO 7
mkfifo new -> EIO 7
chmod seen/kept -> EROFS 5
read picture -> ENXIO 9
chmod picture -> ENXIO 9
link picture new -> ENXIO 9
rename picture new -> ENXIO 9
rename a picture -> ENXIO 9 picture
unlink picture -> ENXIO 9
chmod words -> ok
rename words changed -> ok
rename photos/p new -> EXDEV 6
rename photos/p a -> EXDEV 6
exchange photos/p a -> EXDEV 6
exchange a photos/p -> EXDEV 6 photos/p
rename photos/album new -> EXDEV 6
rename photos/album films/new -> EXDEV 6
exchange photos/album dir -> EXDEV 6
rename photos new -> EXDEV 6
link photos/p new -> EXDEV 6
truncate photos/p -> EPERM 6
truncating photos/p -> ok
empty photos/p -> ok
truncate a -> ok
unlink photos/two -> EPERM 6
rename b photos/two -> EPERM 6 photos/two
unlink two -> ok
unlink photos/two -> EPERM 6
lookup photos/as-well -> ok
lookup photos/two -> ok
unlink photos/two -> ok
unlink photos/one -> ok
rename photos/album photos/moved -> ok
rename b photos/b -> ok
rename photos/b films/b -> ok
rename dir moved -> ok
link a moved/link -> ok
mkdir moved/new -> ok
rmdir moved/new -> ok
lookup none -> ENOENT
opendir . -> ok
mkdir kept -> EEXIST
rmdir kept -> ENOTEMPTY
both a -> ok
mkdir seen/new -> ok
rename a b -> ok
";

/// What a request must answer.
pub struct Case {
    /// The line of the table.
    pub line: String,
    pub operation: String,
    pub paths: [String; 2],
    pub errno: Option<Errno>,
    /// Path and rule of the record.
    pub record: Option<(String, u64)>,
}

impl Case {
    fn new(line: &str) -> Case {
        let (asked, answer) = line.split_once(" -> ").unwrap();
        let mut asked = asked.split(' ').map(str::to_owned);
        let mut answer = answer.split(' ');
        let operation = asked.next().unwrap();
        let paths = [(); 2].map(|()| asked.next().unwrap_or_default());
        let errno = match answer.next().unwrap() {
            "ok" => None,
            "ENOENT" => Some(Errno::ENOENT),
            "EACCES" => Some(Errno::EACCES),
            "EBUSY" => Some(Errno::EBUSY),
            "EROFS" => Some(Errno::EROFS),
            "EPERM" => Some(Errno::EPERM),
            "EXDEV" => Some(Errno::EXDEV),
            "EIO" => Some(Errno::EIO),
            "EEXIST" => Some(Errno::EEXIST),
            "ENOTEMPTY" => Some(Errno::ENOTEMPTY),
            "ENXIO" => Some(Errno::ENXIO),
            other => panic!("{other}"),
        };
        let rule = answer.next().map(|rule| rule.parse().unwrap());
        let path = answer.next().unwrap_or(&paths[0]).to_owned();
        Case {
            line: line.to_owned(),
            record: rule.map(|rule| (path, rule)),
            operation,
            paths,
            errno,
        }
    }

    /// The event in the record of a refusal.
    pub fn event(&self) -> &str {
        match &*self.operation {
            "read" | "write" | "both" | "append" | "truncating" | "emptying" => "open",
            "chmod" | "chown" | "utimes" | "truncate" | "empty" => "setattr",
            "exchange" | "noreplace" => "rename",
            "new" => "create",
            "mkfifo" => "mknod",
            other => other,
        }
    }
}

/// First those that change nothing.
fn cases() -> [Vec<Case>; 2] {
    let changes = [("kept", "EROFS 5"), ("shut", "EBUSY 3")]
        .map(|(directory, no)| CHANGES.replace("DIR", directory).replace("NO", no));
    let makes = [
        ("a.key", "EACCES 1"),
        ("b.key", "EACCES 1"),
        ("of-root", "EACCES 2"),
    ]
    .map(|(name, no)| MAKES.replace("NAME", name).replace("EACCES", no));
    [changes.concat() + &makes.concat(), CASES.to_owned()].map(|text| {
        let lines = text.lines().filter(|line| !line.is_empty());
        lines.map(Case::new).collect()
    })
}

/// Makes the tree.
pub fn fill(source: &Path) {
    let at = |path: &str| source.join(path);
    for name in ["dir", "films", "photos/album", "seen", "hides"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for directory in ["free", "kept", "shut"].map(at) {
        fs::create_dir_all(directory.join("sub")).unwrap();
        fs::write(directory.join("x"), "content").unwrap();
        fs::write(directory.join("sub/inner"), "inner").unwrap();
    }
    let files =
        "a b two a.key of-root denied photos/p photos/one seen/kept hides/h.key words plain";
    for name in files.split(' ').map(at) {
        fs::write(name, "1").unwrap();
    }
    fs::write(at("picture"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
    for name in ["photos/two", "photos/as-well"] {
        fs::hard_link(at("two"), at(name)).unwrap();
    }
    fs::hard_link(at("plain"), at("plain.key")).unwrap();
    chown(at("of-root"), Some(1000), None).unwrap();
    rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
}

/// Asserts that what rules keep is as it was made.
fn is_untouched(source: &Path) {
    for directory in ["free", "kept", "shut"].map(|name| source.join(name)) {
        let entries = fs::read_dir(&directory).unwrap();
        assert_eq!(entries.count(), 2, "{}", directory.display());
        assert_eq!(fs::read(directory.join("sub/inner")).unwrap(), b"inner");
        let file = directory.join("x");
        assert_eq!(fs::read(&file).unwrap(), b"content");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o644);
        assert_eq!(rustix::fs::listxattr(&file, &mut [0_u8; 256]), Ok(0));
    }
}

fn split(path: &str) -> (&str, &[u8]) {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    (parent, name.as_bytes())
}

/// Makes the request.
pub fn ask(root: &Caller<'_, InProcess<HostDir>>, case: &Case) -> Result<()> {
    let [path, other] = case.paths.each_ref().map(String::as_str);
    let place = |path| {
        let (parent, name) = split(path);
        root.walk(parent).map(|parent| (parent, name))
    };
    let on = |act: &dyn Fn(NodeId) -> Result<()>| {
        let node = root.walk(path.trim_start_matches('.'));
        node.and_then(act)
    };
    let at = |act: &dyn Fn(NodeId, &[u8]) -> Result<()>| {
        place(path).and_then(|(parent, name)| act(parent, name))
    };
    let open = |flags| on(&|node| root.open(node, flags).map(drop));
    let set = |valid, size| on(&|node| root.setattr(node, &set(valid, size)).map(drop));
    let rename = |flags| place(path).and_then(|from| root.rename(from, place(other)?, flags));
    let create = |flags| at(&|parent, name| root.create(parent, name, flags, 0o600).map(drop));
    let mknod = |kind| at(&|parent, name| root.mknod(parent, name, kind, 0).map(drop));
    match &*case.operation {
        "lookup" => on(&|_| Ok(())),
        "read" => open(libc::O_RDONLY),
        "write" => open(libc::O_WRONLY),
        "both" => open(libc::O_RDWR),
        "append" => open(libc::O_WRONLY | libc::O_APPEND),
        "truncating" => open(libc::O_WRONLY | libc::O_TRUNC),
        "emptying" => open(libc::O_RDONLY | libc::O_TRUNC),
        "opendir" => on(&|node| root.list(node, true).map(drop)),
        "chmod" => set(SetattrValid::MODE, 0),
        "chown" => set(SetattrValid::UID, 0),
        "utimes" => set(SetattrValid::MTIME, 0),
        "truncate" => set(SetattrValid::SIZE, 3),
        "empty" => set(SetattrValid::SIZE, 0),
        "setxattr" => on(&|node| root.setxattr(node, b"user.x", b"1", 0)),
        "removexattr" => on(&|node| root.removexattr(node, b"user.x")),
        "rename" => rename(0),
        "exchange" => rename(libc::RENAME_EXCHANGE),
        "noreplace" => rename(libc::RENAME_NOREPLACE),
        "link" => on(&|node| {
            let (parent, name) = place(other)?;
            root.link(node, parent, name).map(drop)
        }),
        "unlink" => at(&|parent, name| root.unlink(parent, name)),
        "rmdir" => at(&|parent, name| root.rmdir(parent, name)),
        "create" => create(libc::O_RDWR),
        "new" => create(libc::O_RDWR | libc::O_EXCL),
        "tmpfile" => on(&|node| root.tmpfile(node, libc::O_RDWR, 0o600).map(drop)),
        "mkdir" => at(&|parent, name| root.mkdir(parent, name, 0o700).map(drop)),
        "mknod" => mknod(libc::S_IFREG),
        "mkfifo" => mknod(libc::S_IFIFO),
        "symlink" => at(&|parent, name| root.symlink(parent, name, other.as_bytes()).map(drop)),
        other => panic!("{other}"),
    }
}

/// Asks for all, and asserts the answers. `ask` returns the error, and what is wrong beside it.
#[track_caller]
pub fn all_are_answered(source: &Path, ask: impl Fn(&Case) -> (Option<Errno>, String)) {
    let wrong = |case: &Case| {
        let (errno, also) = ask(case);
        let is_wrong = errno != case.errno || !also.is_empty();
        is_wrong.then(|| format!("{}: {errno:?} {also}", case.line))
    };
    let [changes, cases] = cases();
    let mut all: Vec<_> = changes.iter().filter_map(wrong).collect();
    is_untouched(source);
    all.extend(cases.iter().filter_map(wrong));
    assert!(all.is_empty(), "{all:#?}");
}
