//! access and faccessat.

use rustix::fs::Access;

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    answers_by_the_bits,
    existence_needs_only_search,
    missing_is_enoent,
    root_executes_only_what_anybody_may,
    directory_search_for_root,
    real_ids_count_without_eaccess,
    answers_what_open_does,
};

fn ask(path: &Path, access: Access) -> rustix::io::Result<()> {
    rustix::fs::access(path, access)
}

fn answers_by_the_bits(env: &Env) {
    let path = env.file("file", "");
    env.chmod("file", 0o745);
    ALICE.run(|| {
        ask(&path, Access::EXISTS).unwrap();
        ask(&path, Access::READ_OK).unwrap();
        ask(&path, Access::EXEC_OK).unwrap();
        fails(ask(&path, Access::WRITE_OK), Errno::ACCESS);
        fails(
            ask(&path, Access::READ_OK | Access::WRITE_OK),
            Errno::ACCESS,
        );
    });
}

fn existence_needs_only_search(env: &Env) {
    let path = env.file("file", "");
    env.chmod("file", 0);
    ALICE.run(|| {
        ask(&path, Access::EXISTS).unwrap();
        fails(ask(&path, Access::READ_OK), Errno::ACCESS);
    });
    env.dir("closed");
    let hidden = env.file("closed/file", "");
    env.chmod("closed", 0o700);
    ALICE.run(|| fails(ask(&hidden, Access::EXISTS), Errno::ACCESS));
}

fn missing_is_enoent(env: &Env) {
    fails(ask(&env.path("missing"), Access::EXISTS), Errno::NOENT);
    env.file("file", "");
    fails(ask(&env.path("file/below"), Access::EXISTS), Errno::NOTDIR);
    rustix::fs::symlink("missing", env.path("dangling")).unwrap();
    fails(ask(&env.path("dangling"), Access::EXISTS), Errno::NOENT);
}

fn root_executes_only_what_anybody_may(env: &Env) {
    let path = env.file("file", "");
    env.chmod("file", 0o000);
    ask(&path, Access::READ_OK | Access::WRITE_OK).unwrap();
    fails(ask(&path, Access::EXEC_OK), Errno::ACCESS);
    env.chmod("file", 0o001);
    ask(&path, Access::EXEC_OK).unwrap();
}

fn directory_search_for_root(env: &Env) {
    let path = env.dir("dir");
    env.chmod("dir", 0o000);
    ask(&path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).unwrap();
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
