#!/bin/bash
# Quotas hold for users who write through a mount, also with passthrough: the kernel writes with the
# server's credentials, which must not have the capability to exceed quotas. The mount is the
# guest's own: a kernel with quotas is not everywhere.
SERVE=thrufs THRUFS=/usr/bin/thrufs
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/../real/mount.sh"
need dd setpriv stat grep
LIMIT_KIB=256

# too_much FILE USER: writes more than a user may have, and prints how many KiB came to be.
too_much() {
    setpriv --reuid "$2" --regid "$2" --clear-groups dd if=/dev/zero of="$1" bs=4k count=128 conv=notrunc,fsync 2>"$WORK/said" ||
        grep -q 'Disk quota exceeded' "$WORK/said" || fail "$(cat "$WORK/said")"
    echo $(($(stat -c %b "$1") / 2))
}

mkdir "$WORK/source"
mount -t tmpfs -o "mode=1777,usrquota,usrquota_block_hardlimit=${LIMIT_KIB}k" tmpfs "$WORK/source"
expect "what a user may have beneath" "$(too_much "$WORK/source/native" 1000)" "$LIMIT_KIB"
# The capability exceeds it: the same file, written by root.
dd if=/dev/zero of="$WORK/source/native" bs=4k count=128 conv=notrunc 2>"$WORK/said"
expect "what root adds to a user's file" "$(stat -c %s "$WORK/source/native")" $((512 * 1024))

user=2000
for way in passthrough nopassthrough nopassthrough,cache=never; do
    serve "$WORK/source" "$WORK/mnt" "allow_other,$way"
    # A user without files for each.
    expect "$way: what is written" "$(too_much "$WORK/mnt/$way" $user)" "$LIMIT_KIB"
    expect "$way: owner of the file" "$(stat -c %u "$WORK/source/$way")" $user
    data=$("$THRUFS" explain "$WORK/mnt/$way" | grep 'data path')
    [[ $way != passthrough || $data == *passthrough:* ]] || fail "not passed through: $data"
    # With nothing left, a file can be made and not filled; removed, it gives back what it had.
    expect "$way: one more" "$(too_much "$WORK/mnt/$way.more" $user)" 0
    rm "$WORK/mnt/$way"
    expect "$way: again" "$(too_much "$WORK/mnt/$way.more" $user)" "$LIMIT_KIB"
    unserve "$WORK/mnt"
    user=$((user + 1))
done
say "users are held to their quotas with the kernel writing, and with the server"
