#!/bin/bash
# Published programs that were written for the crate fuser, over thrufs-fuser: unchanged but for the line of their
# Cargo.toml that names the crate. Their own tests mount, and have to pass. What is built is kept in $THRUFS_TOOLS/fuser
# (default: target/fuser); crates.io is needed the first time.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need cargo fusermount3

[[ $SERVE == thrufs ]] || { say "these are programs of their own"; exit 0; }
KEPT=${THRUFS_TOOLS:-$PROJECT/target}/fuser
export CARGO_TARGET_DIR=$KEPT/target
mkdir -p "$KEPT" "$WORK/pinned/src"

# Each: its name, its version, the crate that stands for fuser, the version of fuser that it is written for, arguments.
PROGRAMS=(
    "easy_fuser 0.7.1 fuser 0.18"
    "musefs-fuse 1.3.0 fuser 0.17 --features metrics"
    "branchfs 0.1.1 fuser16 0.16"
)

# The sources, where cargo unpacks them.
{
    printf '[package]\nname = "pinned"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n'
    for program in "${PROGRAMS[@]}"; do
        read -r name version _ <<<"$program"
        echo "$name = \"=$version\""
    done
} >"$WORK/pinned/Cargo.toml"
: >"$WORK/pinned/src/lib.rs"
cd "$WORK/pinned"
host=$(rustc --print host-tuple)
if ! cargo fetch --quiet --target "$host"; then
    skipped programs "crates.io is not reachable"
    exit 0
fi
cargo metadata --format-version 1 --offline --filter-platform "$host" >"$WORK/metadata"

for program in "${PROGRAMS[@]}"; do
    read -r name version crate written arguments <<<"$program"
    manifest=$(grep -o "\"manifest_path\":\"[^\"]*/$name-$version/Cargo.toml\"" "$WORK/metadata" | cut -d '"' -f 4)
    [[ -f $manifest ]] || fail "cargo has not unpacked $name $version"
    # At the same place in each run, so that nothing is built again.
    copy=$KEPT/$name
    rm -rf "$copy"
    cp -r "$(dirname "$manifest")" "$copy"
    cd "$copy"
    # The one line. (It may stand for several platforms.)
    sed -i "/dependencies\.fuser\]\$/,/^\$/ s|^version = .*|package = \"thrufs-$crate\"\npath = \"$PROJECT/crates/$crate\"|" Cargo.toml
    grep -q "thrufs-$crate" Cargo.toml || fail "$name does not depend on fuser"
    echo '[workspace]' >>Cargo.toml
    # What its tests use, and publishing leaves out.
    if [[ $name == musefs-fuse ]]; then
        cargo add --quiet --dev "musefs-db@$version"
        cargo add --quiet --dev "musefs-format@$version" --features fuzzing
    fi
    # Tests that mount are marked as ignored by some. Those of speed are no tests.
    # shellcheck disable=SC2086 # words
    cargo test --quiet --no-fail-fast --tests $arguments -- --include-ignored --skip benchmark --test-threads 1 >"$WORK/$name.log" 2>&1 ||
        { tail -n 100 "$WORK/$name.log" >&2; fail "the tests of $name"; }
    ! cargo tree --quiet --prefix none | grep -q '^fuser v' || fail "$name still uses fuser"
    passed=$(awk '/^test result: ok/ { passed += $4 } END { print passed + 0 }' "$WORK/$name.log")
    ((passed > 0)) || fail "$name has no tests"
    say "$name $version, written for fuser $written: $passed tests"
done
cd "$WORK"
say "all programs serve over thrufs"
