#!/bin/bash
# Where a directory takes names of another case for the same, no pattern of a policy is gone around by
# them. The mount is the guest's own: a kernel that folds case is not everywhere.
SERVE=thrufs THRUFS=/usr/bin/thrufs
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/../real/mount.sh"
need cat chattr grep ln mv

# refused COMMAND...: with EACCES, not because of what is there or not.
refused() {
    ! "$@" >"$WORK/said" 2>&1 || fail "not refused: $*"
    grep -q 'Permission denied' "$WORK/said" || fail "$*: $(cat "$WORK/said")"
}

# absent NAME: whatever it is called.
absent() {
    ! cat "$1" >"$WORK/said" 2>&1 || fail "$1 is there"
    grep -q 'No such file' "$WORK/said" || fail "$1: $(cat "$WORK/said")"
}

mkdir "$WORK/source"
mount -t tmpfs -o casefold tmpfs "$WORK/source"
mkdir "$WORK"/source/{folded,plain}
chattr +F "$WORK/source/folded"
for directory in folded plain; do
    for name in secret.txt straße other 2026 ß ı 사진; do
        echo "$name" >"$WORK/source/$directory/$name"
    done
done
# A file with two links, of which the directory lists one.
ln "$WORK/source/folded/other" "$WORK/source/link"
expect "beneath, case" "$(cat "$WORK/source/folded/SECRET.txt")" secret.txt
expect "beneath, one letter for two" "$(cat "$WORK/source/folded/STRASSE")" straße
HYPHEN=$'\xc2\xad' # soft
expect "beneath, what is ignored" "$(cat "$WORK/source/folded/2026$HYPHEN")" 2026

serve "$WORK/source" "$WORK/mnt" cache=never
expect "without a policy" "$(cat "$WORK/mnt/folded/SECRET.txt")" secret.txt
unserve "$WORK/mnt"

cat >"$WORK/policy" <<'END'
[[rule]]
path = ["*/secret.txt", "*/straße"]
action = "hide"
END
for cache in never auto; do
    serve "$WORK/source" "$WORK/mnt" "cache=$cache,policy=$WORK/policy"
    absent "$WORK/mnt/plain/secret.txt"
    absent "$WORK/mnt/plain/SECRET.txt"
    expect "names that do not fold" "$(cat "$WORK/mnt/plain/other")" other
    for name in 2026 ß ı 사진; do
        expect "$name, which does not fold" "$(cat "$WORK/mnt/plain/$name")" "$name"
    done
    for name in secret.txt SECRET.txt sEcret.txt straße STRASSE Straße other OTHER ß ss SS ẞ \
        ı "ı$HYPHEN" 2026 "2026$HYPHEN" 사진 "사진$HYPHEN"; do
        refused cat "$WORK/mnt/folded/$name"
        refused mv "$WORK/mnt/folded/$name" "$WORK/mnt/plain/moved"
        refused ln "$WORK/mnt/folded/$name" "$WORK/mnt/plain/linked"
        refused mv -T "$WORK/mnt/plain/other" "$WORK/mnt/folded/$name"
    done
    # What is made there is under its name at once, and refused from then on.
    echo made >"$WORK/mnt/folded/made" || fail "making a file"
    refused cat "$WORK/mnt/folded/MADE"
    rm "$WORK/source/folded/made"
    unserve "$WORK/mnt"
done
say "names in another case are refused under a policy"
