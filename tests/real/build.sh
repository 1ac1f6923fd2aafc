#!/bin/bash
# Building on the mount: a part of this project with cargo, or what BUILD_PACKAGES says, as `-p NAME`s.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need cargo

lower "$WORK/lower" 4G
mkdir "$WORK/lower/served"
serve "$WORK/lower/served" "$WORK/mnt"

# Sources and target directory, without the network: what it needs was fetched when this project was
# built.
mkdir "$WORK/mnt/project"
tar -C "$PROJECT" --exclude=./target --exclude=./.git --exclude=./fuzz/target -cf - . |
    tar -C "$WORK/mnt/project" -xf -
packages=${BUILD_PACKAGES:-"-p thrufs-abi -p xtask"}
cd "$WORK/mnt/project"
# shellcheck disable=SC2086 # words
cargo build --offline --locked --quiet $packages --target-dir "$WORK/mnt/target" ||
    fail "cargo build on the mount"
# shellcheck disable=SC2086
again=$(cargo build --offline --locked $packages --target-dir "$WORK/mnt/target" 2>&1)
! grep -q Compiling <<<"$again" || { echo "$again" >&2; fail "cargo builds again what has not changed"; }
"$WORK/mnt/target/debug/xtask" help >/dev/null || fail "the program that cargo built does not run"
cd "$WORK"
say "cargo build: done, and nothing to do the second time"
unserve "$WORK/mnt"
