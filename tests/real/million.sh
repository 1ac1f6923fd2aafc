#!/bin/bash
# A million files under 1024 descriptors: walked, seen, forgotten, and walked again.
#
#   MILLION     how many files (default 100000; the whole of it by hand: MILLION=1000000)
#   BYTES_MAX   most resident bytes per cached inode (default 300)
#   BYTES_LEFT_MAX  most that may be left of it once they are forgotten (default 100: a slot is 24, and
#               there are up to twice as many of them)
#   FIGURES     a file to write what was found to, as JSON (default: none)
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
MILLION=${MILLION:-100000}
BYTES_MAX=${BYTES_MAX:-300}
BYTES_LEFT_MAX=${BYTES_LEFT_MAX:-100}
FIGURES=${FIGURES:-}
DIRECTORIES=$((MILLION / 100))
# So many inodes beneath and above have room in most memories: the kernel drops few of them.
KEPT_MAX=2000000

# make_files TOP DIRECTORIES: 100 files in each directory.
make_files() {
    (
        cd "$1"
        seq -f 'd%.0f' "$2" | xargs -n 5000 mkdir
        awk -v directories="$2" 'BEGIN {
            for (d = 1; d <= directories; d++) for (f = 1; f <= 100; f++) print "d" d "/f" f }' |
            xargs -n 5000 touch
    )
}

# walk TOP: every name and every inode number; a name that cannot be seen fails.
walk() {
    find "$1" -printf '%i %y %m %P\n' >"$WORK/walk" 2>"$WORK/walk-errors" ||
        { head -n 5 "$WORK/walk-errors" >&2; fail "find $1"; }
    [[ ! -s $WORK/walk-errors ]] || { head -n 5 "$WORK/walk-errors" >&2; fail "find $1 complained"; }
}

# kernel_marks POINT: how many inodes its server watches by fanotify, by the kernel's count.
kernel_marks() { cat "/proc/$(server_pid "$1")/fdinfo/"* 2>/dev/null | grep -c '^fanotify ino:' || true; }

# settle POINT WANTED: the kernel forgets; the server's inodes, and its marks, must come down to WANTED.
settle() {
    local turn now= marked=
    for ((turn = 0; turn < 60; turn++)); do
        drop_caches
        now=$(statistics "$1" inodes) marked=$(kernel_marks "$1")
        ((now > $2 || marked > $2)) || return 0
        sleep 1
    done
    fail "after the kernel dropped its caches, the server still knows $now inodes and has $marked marks; it began with $2 inodes"
}

# gives_back PID BEFORE: of the memory that all these files took, little more than numbers that may not come
# again is kept.
gives_back() {
    local turn left
    for ((turn = 0; turn < 60; turn++)); do
        left=$((($(resident_bytes "$1") - $2) / MILLION))
        ((left > BYTES_LEFT_MAX)) || { say "$left bytes of each are left"; return 0; }
        sleep 1
    done
    fail "$left bytes are left of each file that was forgotten, wanted at most $BYTES_LEFT_MAX"
}

# mark_bytes: what the kernel has for a mark on a directory of the lower file system, whose inode it holds.
mark_bytes() {
    cat /sys/kernel/slab/{fanotify_mark,fsnotify_mark_connector,"$LOWER"_inode*}/slab_size 2>/dev/null |
        awk '{ sum += $1 } END { print sum + 0 }'
}

say "making $MILLION files"
lower "$WORK/lower" $((4 + MILLION / 1500000))G -N $((MILLION + DIRECTORIES + 60000))
mkdir "$WORK/lower/served"
head -c 2M /dev/zero >"$WORK/lower/served/warm-up"
make_files "$WORK/lower/served" "$DIRECTORIES"
drop_caches
SERVE_WITH="prlimit --nofile=1024:1024" serve "$WORK/lower/served" "$WORK/mnt"
# Buffers and pools are touched before the first measure: they are no inode's memory.
cat "$WORK/mnt/warm-up" >/dev/null
ls "$WORK/mnt" >/dev/null
if [[ $SERVE != native ]]; then
    drop_caches
    began=$(statistics "$WORK/mnt" inodes)
    pid=$(server_pid "$WORK/mnt")
    expect "the server's descriptor limit" "$(awk '/Max open files/ { print $4 }' "/proc/$pid/limits")" 1024
    before=$(resident_bytes "$pid")
fi

start=$SECONDS
walk "$WORK/mnt"
expect "files found" "$(awk '$2 == "f"' "$WORK/walk" | wc -l)" $((DIRECTORIES * 100 + 1))
expect "inode numbers" "$(cut -d' ' -f1 "$WORK/walk" | sort -un | wc -l)" $((DIRECTORIES * 101 + 2))
walked=$((SECONDS - start))
say "walked in $walked s"
if [[ $SERVE != native ]]; then
    known=$(statistics "$WORK/mnt" inodes)
    after=$(resident_bytes "$pid")
    descriptors=$(find "/proc/$pid/fd" -mindepth 1 | wc -l)
    each=$(((after - before) / known))
    say "$known inodes known, $each bytes each ($before -> $after), $descriptors descriptors open"
    marks=$(kernel_marks "$WORK/mnt")
    say "$marks marks of $(mark_bytes) bytes each in the kernel, with the inode beneath"
    ((descriptors < 1024)) || fail "$descriptors descriptors open"
    if ((MILLION <= KEPT_MAX)); then
        # The kernel drops inodes when memory is short, never half of them here.
        ((known > MILLION / 2)) || fail "only $known inodes are known after walking $MILLION files"
        ((each <= BYTES_MAX)) || fail "$each bytes per inode, wanted at most $BYTES_MAX"
    fi
fi

# Known inodes whose descriptors are long gone: opened, read and changed.
find "$WORK/mnt" -name f77 -newermt 1970-01-01 | shuf -n 500 --random-source=<(yes) >"$WORK/some"
while read -r file; do
    echo text >"$file" || fail "cannot write $file"
    expect "$file" "$(cat "$file")" text
done <"$WORK/some"

[[ $SERVE == native ]] || settle "$WORK/mnt" "$began"
say "forgotten: the server knows as many inodes as when it began"
[[ $SERVE == native ]] || gives_back "$pid" "$before"
walk "$WORK/mnt"
expect "files found the second time" "$(awk '$2 == "f"' "$WORK/walk" | wc -l)" $((DIRECTORIES * 100 + 1))
find "$WORK/lower/served" -printf '%i %y %m %P\n' | LC_ALL=C sort >"$WORK/beneath"
LC_ALL=C sort "$WORK/walk" | cmp - "$WORK/beneath" || fail "the mount's names, types, modes or inode numbers are others than beneath"
[[ $SERVE == native ]] || settle "$WORK/mnt" "$began"
unserve "$WORK/mnt"
# Only of a walk that was right to the end.
[[ -z $FIGURES ]] || printf '{"files": %d, "known": %d, "resident": %d, "descriptors": %d, "seconds": %d, "marks": %d, "mark": %d}\n' \
    "$MILLION" "$known" $((after - before)) "$descriptors" "$walked" "$marks" "$(mark_bytes)" >"$FIGURES"

# The same where files have no handles: an overlay. Its inodes are found again by name.
OVERLAY_DIRECTORIES=$((DIRECTORIES < 200 ? DIRECTORIES : 200))
mkdir -p "$WORK/lower/o/lower" "$WORK/lower/o/upper" "$WORK/lower/o/work" "$WORK/overlay"
make_files "$WORK/lower/o/lower" "$OVERLAY_DIRECTORIES"
if mount -t overlay overlay -o "lowerdir=$WORK/lower/o/lower,upperdir=$WORK/lower/o/upper,workdir=$WORK/lower/o/work,nfs_export=off,index=off" \
    "$WORK/overlay" 2>"$WORK/overlay-error"; then
    SERVE_WITH="prlimit --nofile=1024:1024" serve "$WORK/overlay" "$WORK/mnt" \
        allow_other,entry_timeout=3600,attr_timeout=3600
    [[ $SERVE == native ]] || began=$(statistics "$WORK/mnt" inodes)
    walk "$WORK/mnt"
    expect "files found without handles" "$(awk '$2 == "f"' "$WORK/walk" | wc -l)" $((OVERLAY_DIRECTORIES * 100))
    for directory in $(seq 1 17 "$OVERLAY_DIRECTORIES"); do
        echo text >"$WORK/mnt/d$directory/f50" || fail "cannot write d$directory/f50"
        expect "d$directory/f50" "$(cat "$WORK/overlay/d$directory/f50")" text
    done
    [[ $SERVE == native ]] || settle "$WORK/mnt" "$began"
    unserve "$WORK/mnt"
    say "without handles: $((OVERLAY_DIRECTORIES * 100)) files, 1024 descriptors"
else
    skipped without-handles "no overlay here: $(cat "$WORK/overlay-error")"
fi
