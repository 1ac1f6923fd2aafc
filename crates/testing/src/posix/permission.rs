//! Permissions by the mode bits.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    supplementary_groups_count:
        "file file team; chown file 0 team; chmod file 660; dir dir; chown dir 0 team;
         chmod dir 770; member: is file text team; member: file dir/new;
         alice: EACCES open file r; alice: EACCES file dir/other; is dir names new",
    creation_needs_write_on_the_directory:
        "dir dir; file dir/kept x; alice: EACCES {file,dir,fifo} dir/new;
         alice: EACCES symlink x dir/new; alice: EACCES unlink dir/kept; is dir names kept",
    removal_does_not_need_the_file:
        "shared dir; file dir/file of root; chmod dir/file 600; alice: unlink dir/file;
         absent dir/file",
    root_reads_and_writes_everything:
        "dir dir; file dir/file x; chown dir/file alice alice; chmod dir/file 0; chmod dir 0;
         file dir/file by root; is dir/file text by root; is dir names file",
    change_of_mode_counts_at_once:
        "dir dir; file dir/file x; alice: open dir/file r; chmod dir 700;
         alice: EACCES open dir/file r; chmod dir 755; alice: open dir/file r; chmod dir 700;
         alice: EACCES open dir/file r",
};
