//! Permissions by the mode bits.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    owner_bits_decide_for_the_owner:
        "file file x; chown file alice alice; chmod file 77; alice: EACCES open file {r,w};
         chmod file 400; alice: open file r; alice: EACCES open file rw; chmod file 200;
         alice: open file w; alice: EACCES open file rw",
    group_bits_decide_for_the_group:
        "file file x; chown file 0 alice; chmod file 707; alice: EACCES open file r;
         chmod file 60; alice: open file rw; bob: EACCES open file r",
    supplementary_groups_count:
        "file file team; chown file 0 team; chmod file 660; dir dir; chown dir 0 team;
         chmod dir 770; member: is file text team; member: file dir/new;
         alice: EACCES open file r; alice: EACCES file dir/other; is dir names new",
    other_bits_decide_for_the_rest:
        "file file x; chmod file 604; alice: open file r; alice: EACCES open file w;
         alice: EACCES open file r,trunc; is file text x",
    directory_needs_search:
        "dir dir; file dir/file x; chmod dir 744; alice: EACCES open dir/file r;
         alice: EACCES stat dir/{file,missing}; alice: is dir names file",
    listing_needs_read_only:
        "dir dir; file dir/file x; chmod dir 711; alice: EACCES list dir;
         alice: is dir/file text x",
    creation_needs_write_on_the_directory:
        "dir dir; file dir/kept x; alice: EACCES {file,dir,fifo} dir/new;
         alice: EACCES symlink x dir/new; alice: EACCES unlink dir/kept; is dir names kept",
    removal_does_not_need_the_file:
        "shared dir; file dir/file of root; chmod dir/file 600; alice: unlink dir/file;
         absent dir/file",
    root_reads_and_writes_everything:
        "dir dir; file dir/file x; chown dir/file alice alice; chmod dir/file 0; chmod dir 0;
         file dir/file by root; is dir/file text by root; is dir names file",
    change_of_mode_counts_at_once,
    search_is_checked_on_every_component:
        "dir {a,a/b,a/b/c}; file a/b/c/file deep; alice: is a/b/c/file text deep; chmod a 700;
         alice: EACCES open a/b/c/file r; chmod a 755; chmod a/b 700;
         alice: EACCES open a/b/c/file r; chmod a/b 755; chmod a/b/c 700;
         alice: EACCES open a/b/c/file r; chmod a/b/c 755; alice: is a/b/c/file text deep",
    sticky_directory_protects_names:
        "shared dir; chmod dir 1777; alice: file dir/file hers; bob: EPERM unlink dir/file;
         is dir/file text hers; alice: unlink dir/file; absent dir/file",
};

fn change_of_mode_counts_at_once(env: &Env) {
    let dir = env.dir("dir");
    let path = env.file("dir/file", "x");
    for round in 0..20 {
        let open_up = round % 2 == 0;
        env.chmod("dir", if open_up { 0o755 } else { 0o700 });
        ALICE.run(|| {
            let result = open(&path, OFlags::RDONLY);
            assert_eq!(result.is_ok(), open_up, "round {round}: {result:?}");
        });
    }
    assert!(dir.is_dir());
}
