//! The fuzz targets as plain tests: each runs once with every file of its seeds (`fuzz/seeds`), which
//! reach most of the code that fuzzing does. `cargo xtask soak fuzz` looks for more.
#![allow(clippy::unwrap_used, unused_attributes, unused_imports)]

// The targets name it, and get the macro below in place of libFuzzer's.
extern crate self as libfuzzer_sys;

use std::fs;
use std::path::Path;

/// What libFuzzer's macro does, as a function that is called once.
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        pub(crate) fn run($bytes: &[u8]) {
            $body
        }
    };
    (|$input:ident: $type:ty| $body:expr) => {
        pub(crate) fn run(bytes: &[u8]) {
            let input = arbitrary::Unstructured::new(bytes);
            if let Ok($input) = <$type as arbitrary::Arbitrary<'_>>::arbitrary_take_rest(input) {
                $body
            }
        }
    };
}

#[path = "../../fuzz/fuzz_targets/control.rs"]
mod control;
#[path = "../../fuzz/fuzz_targets/device_state.rs"]
mod device_state;
#[path = "../../fuzz/fuzz_targets/dirents.rs"]
mod dirents;
#[path = "../../fuzz/fuzz_targets/dispatch.rs"]
mod dispatch;
#[path = "../../fuzz/fuzz_targets/init.rs"]
mod init;
#[path = "../../fuzz/fuzz_targets/policy.rs"]
mod policy;
#[path = "../../fuzz/fuzz_targets/redact.rs"]
mod redact;
#[path = "../../fuzz/fuzz_targets/request.rs"]
mod request;
#[path = "../../fuzz/fuzz_targets/request_split.rs"]
mod request_split;
#[path = "../../fuzz/fuzz_targets/session_state.rs"]
mod session_state;
#[path = "../../fuzz/fuzz_targets/virtqueue.rs"]
mod virtqueue;

/// Tests named as the targets are.
macro_rules! tests {
    ($($target:ident),*) => {$(
        #[test]
        fn $target() {
            with_seeds(stringify!($target), $target::run);
        }
    )*};
}

tests!(
    control,
    device_state,
    dirents,
    dispatch,
    init,
    policy,
    redact,
    request,
    request_split,
    session_state,
    virtqueue
);

fn with_seeds(target: &str, run: impl Fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/seeds")
        .join(target);
    let mut count = 0;
    for seed in fs::read_dir(&seeds).unwrap() {
        let path = seed.unwrap().path();
        // The last such line names the seed of a failure.
        eprintln!("{}", path.display());
        run(&fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "no seeds in {}", seeds.display());
}
