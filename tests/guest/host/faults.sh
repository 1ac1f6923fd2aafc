#!/bin/bash
# What goes wrong beneath a share, and with its server: a clear error in the guest, nothing lost that was
# acknowledged, nothing that hangs, and a next guest that is served.
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/../machine.sh"
need xfs_io fallocate
[[ $SERVER == thrufs ]] || fail "this is about thrufs"

# refused WHAT PATTERN COMMAND: in the guest, it fails within 20 s, saying one of PATTERN.
refused() {
    local code=0
    ask guest "timeout -k 1 20 bash -c '$3'" || code=$?
    ((code != 0)) || fail "$1: succeeded: $ANSWER"
    ((code != 124 && code != 137)) || fail "$1: no answer within 20 s"
    grep -qE "$2" <<<"$ANSWER" || fail "$1: another error than $2: $ANSWER"
}

full_disk() {
    asks guest 'echo precious >/shared/before; head -c 3M /dev/zero >/shared/room
        sync /shared/before /shared/room; head -c 40M /dev/urandom >/tmp/random'
    refused "writing to a full disk" 'No space left' \
        'dd if=/tmp/random of=/shared/big bs=64k oflag=dsync'
    local blocks
    blocks=$(sed -nE 's/^([0-9]+)\+[0-9]+ records out$/\1/p' <<<"$ANSWER")
    ((blocks > 16)) || fail "only $blocks blocks fit on a disk of 24 MB"
    refused "an fsync or close on a full disk" 'No space left' \
        'dd if=/tmp/random of=/shared/more bs=1M count=30 conv=fsync'
    refused "fallocate on a full disk" 'No space left' 'fallocate -l 20M /shared/big2'
    asks guest "cmp -n $((blocks * 65536)) /tmp/random /shared/big; cat /shared/before"
    expect "a file from before the disk was full" "$ANSWER" precious
    asks guest 'rm -f /shared/more /shared/big2 /shared/room; sleep 1
        dd if=/tmp/random of=/shared/after bs=64k count=4 conv=fsync status=none
        cmp -n 262144 /tmp/random /shared/after; cp /tmp/random /beneath/random'
    cmp -n $((blocks * 65536)) "$WORK/lower/served/random" "$WORK/small/served/big" ||
        fail "what was acknowledged is not there"
    rm "$WORK/lower/served/random"
    say "disk full: ENOSPC in the guest, $blocks blocks acknowledged and all there, room again"
}

read_only() {
    mount -o remount,ro "$WORK/small"
    refused "creating on a disk that became read-only" 'Read-only' 'touch /shared/new'
    refused "writing there" 'Read-only' 'echo x >>/shared/before'
    asks guest 'cat /shared/before'
    mount -o remount,rw "$WORK/small"
    asks guest 'touch /shared/new'
    say "lower file system read-only: EROFS in the guest, and writable again"
}

vanishing_source() {
    asks guest 'mkdir /shared/sub; echo gone >/shared/sub/file; echo kept >/shared/file'
    order guest 'exec 7</shared/file; : >/beneath/opened
        while [[ -e /beneath/opened ]]; do sleep 0.05; done; cat <&7'
    while [[ ! -e $WORK/lower/served/opened ]]; do sleep 0.05; done
    rm -rf "$WORK/small/served"
    rm "$WORK/lower/served/opened"
    answer guest || fail "an open file after its source vanished: $ANSWER"
    expect "an open file after its source vanished" "$ANSWER" kept
    # What the guest remembers of names is gone after a second, and what has a longer timeout goes now.
    asks guest 'sleep 1.2; echo 2 >/proc/sys/vm/drop_caches'
    refused "a file of the vanished source" 'No such file|Stale' 'stat /shared/before'
    refused "a file of a vanished directory" 'No such file|Stale' 'cat /shared/sub/file'
    refused "creating in the vanished source" 'No such file|Stale' 'touch /shared/again'
    say "source vanished: clear errors, what was open is readable"
}

broken_disk() {
    asks guest 'echo 3 >/proc/sys/vm/drop_caches; exec 7>>/shared/before; echo more >&7'
    xfs_io -x -c shutdown "$WORK/small"
    refused "reading from a broken disk" 'Input/output' 'cat /shared/big >/dev/null'
    refused "writing to it" 'Input/output' 'dd if=/tmp/random of=/shared/before bs=4k count=1 conv=notrunc,fsync'
    refused "creating on it" 'Input/output' 'touch /shared/newer'
    say "lower file system broken: EIO in the guest"
}

# start: a disk of 24 MB, shared.
start() {
    LOWER=ext4 lower "$WORK/small" 24M
    mkdir "$WORK/small/served"
    share shared "$OPTIONS" "$WORK/small/served"
    boot guest shared beneath
}

stop() {
    dismiss guest
    ended shared
    rm "$WORK/shared.socket" 2>/dev/null || true
    umount "$WORK/small"
}

lower "$WORK/lower" 512M
mkdir "$WORK/lower/served"
share_beneath
start
full_disk
read_only
vanishing_source
stop
start
asks guest 'head -c 5M /dev/urandom >/shared/big; echo one >/shared/before; sync /shared/big /shared/before
    head -c 1M /dev/urandom >/tmp/random'
broken_disk
stop
ended beneath
