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
    exchange_with_a_missing_name_is_enoent:
        "file a kept; ENOENT rename2 exchange a missing; ENOENT rename2 exchange missing a;
         stat a",
    exchange_with_an_own_parent_is_einval:
        "dir {dir,dir/sub}; EINVAL rename2 exchange dir dir/sub;
         EINVAL rename2 exchange dir/sub dir; stat dir/sub",
    exchange_keeps_open_files:
        "file {a,b} was {a,b}; open @a a rw,append; rename2 exchange a b; write @a , still;
         close @a; is b text was a, still; is a text was b",
    whiteout_leaves_a_whiteout [NotOverlay]:
        "file from content; rename2 whiteout from to; is to text content;
         is from type char rdev 0 0",
    unknown_and_contradictory_flags_are_einval:
        "file {a,b} {a,b}; EINVAL rename2 noreplace,exchange a b; EINVAL rename2 128 a b;
         is {a,b} text {a,b}",
};
