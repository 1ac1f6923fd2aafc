//! access and faccessat.

use rustix::fs::Access;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    answers_by_the_bits:
        "file file; chmod file 745; alice: access file {f,r,x}; alice: EACCES access file {w,rw}",
    existence_needs_only_search:
        "file file; chmod file 0; alice: access file f; alice: EACCES access file r; dir closed;
         file closed/file; chmod closed 700; alice: EACCES access closed/file f",
    missing_is_enoent:
        "file file; symlink missing dangling; ENOENT access {missing,dangling} f;
         ENOTDIR access file/below f",
    root_executes_only_what_anybody_may:
        "file file; chmod file 0; access file rw; EACCES access file x; chmod file 1;
         access file x",
    directory_search_for_root: "dir dir; chmod dir 0; access dir rwx",
    real_ids_count_without_eaccess,
    answers_what_open_does,
};

fn ask(path: &Path, access: Access) -> rustix::io::Result<()> {
    rustix::fs::access(path, access)
}

fn real_ids_count_without_eaccess(env: &Env) {
    use rustix::process::Uid;
    let path = env.file("file", "");
    env.chmod("file", 0o600);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Effectively ALICE, really root: as a program with the set-user-id bit.
            let (root, alice) = (Uid::from_raw(0), Uid::from_raw(ALICE.uid));
            rustix::thread::set_thread_res_uid(root, alice, root).unwrap();
            ask(&path, Access::READ_OK).unwrap();
            let effective = rustix::fs::accessat(CWD, &path, Access::READ_OK, AtFlags::EACCESS);
            fails(effective, Errno::ACCESS);
        });
    });
}

fn answers_what_open_does(env: &Env) {
    let path = env.file("file", "");
    env.chown("file", ALICE.uid, TEAM);
    for mode in [0o000, 0o400, 0o040, 0o004, 0o440, 0o044, 0o404, 0o444] {
        env.chmod("file", mode);
        for caller in [ALICE, BOB, MEMBER] {
            caller.run(|| {
                let may = ask(&path, Access::READ_OK).is_ok();
                let does = open(&path, OFlags::RDONLY).is_ok();
                let bit = match caller.uid {
                    uid if uid == ALICE.uid => 0o400,
                    uid if uid == MEMBER.uid => 0o040,
                    _ => 0o004,
                };
                assert_eq!(
                    (may, does),
                    (mode & bit != 0, mode & bit != 0),
                    "{mode:o} {caller:?}"
                );
            });
        }
    }
}
