//! renameat2 with its flags.

use super::prelude::*;

pub(super) const CASES: &[Case] = cases! {
    noreplace_moves_to_a_free_name:
        "file from content; rename2 noreplace from to; absent from; is to text content",
    noreplace_refuses_what_exists:
        "file from from; file file kept; dir dir; symlink nowhere link;
         EEXIST rename2 noreplace from {file,dir,link,from}; is file text kept; is from text from",
    exchange_of_two_files:
        "file {a,b} was {a,b}; note a; rename2 exchange a b; is a text was b; is b text was a;
         same b ino; unlike a ino",
    exchange_of_a_file_and_a_directory:
        "file file content; dir dir; file dir/inner inner; rename2 exchange file dir;
         is dir text content; is file/inner text inner",
    exchange_between_directories:
        "dir {x,y,x/sub,y/sub}; file {x,y}/sub/file {x,y}; rename2 exchange x/sub y/sub;
         is x/sub/file text y; is y/sub/file text x; is x/sub/.. ino x",
    exchange_keeps_open_files:
        "file {a,b} was {a,b}; open @a a rw,append; rename2 exchange a b; write @a , still;
         close @a; is b text was a, still; is a text was b",
    whiteout_leaves_a_whiteout [NotOverlay]:
        "file from content; rename2 whiteout from to; is to text content;
         is from type char rdev 0 0",
};
