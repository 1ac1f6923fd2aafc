#!/bin/bash
# POSIX, call by call: the mount must answer each case as the file system beneath does.
# Some cases bind sockets, whose paths have at most 107 bytes: a short place to work in.
TMPDIR=/tmp
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need pjdfstest

cat >"$WORK/pjdfstest.toml" <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
# Longer than the clock tick that file systems stamp with (4 ms at HZ=250).
naptime = 0.02
# Remounting is mount(8)'s business with FUSE, and fails as busy now and then on any file system.
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML

# Of one case the precondition is out of a FUSE server's reach: pathconf(_PC_LINK_MAX) is answered by
# the C library from the type of the file system, for any FUSE one with "unknown".
OUT_OF_REACH='^link::link_count_max '

# cases PATH OUT [NAME...]: runs the cases and lists `name result`. The reasons of failures go to
# OUT.raw.
cases() {
    local path=$1 out=$2
    shift 2
    pjdfstest -c "$WORK/pjdfstest.toml" -p "$path" -s "$WORK/other" "$@" \
        >"$out.raw" 2>&1 || true
    sed 's/\x1b\[[0-9;]*m//g' "$out.raw" |
        sed -nE 's/^([a-z_:0-9]+) +(ok|FAILED|skipped)$/\1 \2/p' |
        grep -v "$OUT_OF_REACH" | LC_ALL=C sort >"$out"
}

lower "$WORK/lower" 512M
mkdir "$WORK/other"
mount -t tmpfs tmpfs "$WORK/other"
native "$WORK/lower/native"
mkdir "$WORK/lower/served"
serve "$WORK/lower/served" "$WORK/mnt"

cases "$WORK/lower/native" "$WORK/by-native"
cases "$WORK/mnt" "$WORK/by-mount"
total=$(wc -l <"$WORK/by-native")
((total > 300)) || { tail -n 20 "$WORK/by-native.raw" >&2; fail "only $total cases ran"; }

# A case that differs gets a second chance on both sides: some of them measure time.
mapfile -t differing < <(LC_ALL=C comm -3 "$WORK/by-native" "$WORK/by-mount" | awk '{ print $1 }' | sort -u)
if ((${#differing[@]} > 0)); then
    say "again, because they differ: ${differing[*]}"
    cases "$WORK/lower/native" "$WORK/again-native" "${differing[@]}"
    cases "$WORK/mnt" "$WORK/again-mount" "${differing[@]}"
    for case in "${differing[@]}"; do
        grep -q "^$case " "$WORK/again-native" || fail "$case did not run the second time"
    done
    if ! diff "$WORK/again-native" "$WORK/again-mount" >&2; then
        sed -n '/FAILED/,/Backtrace/p' "$WORK/again-mount.raw" | grep -v Backtrace >&2
        fail "cases with another result than natively"
    fi
fi
unserve "$WORK/mnt"
say "$total cases, the same results as natively:" \
    "$(awk '{ count[$2]++ } END { for (word in count) printf "%s %d  ", word, count[word] }' "$WORK/by-mount")"
