# shellcheck shell=bash
# Sourced by every script here: a place to work in, lower file systems, the server, cleaning up.
#
#   THRUFS   the command to test
#   THRUFS_CLIENT  the test client (default: beside THRUFS)
#   TOOLS    where fsx and pjdfstest are (default: found through PATH)
#   SERVE    `thrufs` (default); `native`: a bind mount instead, to try the script itself; or `guest`:
#            inside a guest, where the shares $SHARED and $BENEATH stand for a mount and what is
#            beneath it
#   OPTIONS  more mount options for every `serve`, comma separated
#   TRANSPORT  `dev` (default) or `uring`: how requests come where options do not say it; or `relay`: by
#            the queues of a virtio-fs device, from `thrufs-client mount` to `thrufs share`
#   LOWER    `ext4` (default), `xfs`, `btrfs` or `tmpfs`: what `lower` makes
#
# A script that has something of its own to take down defines `tear_down`; it sets no trap.
# `cargo xtask real NAME` runs a script in namespaces of its own. By hand, the traps clean up.

set -euo pipefail
shopt -s inherit_errexit

NAME=$(basename "$0" .sh)
SERVE=${SERVE:-thrufs}
TRANSPORT=${TRANSPORT:-dev}
LOWER=${LOWER:-ext4}
PROJECT=${PROJECT:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
if [[ $SERVE == thrufs ]]; then
    THRUFS=${THRUFS:-$PROJECT/target/release/thrufs}
    THRUFS_CLIENT=${THRUFS_CLIENT:-$(dirname "$THRUFS")/thrufs-client}
    [[ -x $THRUFS ]] || { echo "$NAME: no such command: $THRUFS (set THRUFS)" >&2; exit 2; }
fi
[[ -z ${TOOLS:-} ]] || PATH=$TOOLS:$PATH
[[ $(id -u) == 0 ]] || { echo "$NAME: root is needed: this mounts file systems" >&2; exit 2; }

WORK=$(mktemp -d "${TMPDIR:-/tmp}/thrufs-$NAME.XXXXXX")
chmod 755 "$WORK"
export TMPDIR=$WORK
declare -A SERVER_PID=() SERVER_LOG=() GUEST_LOWER=()

say() { echo "$NAME: $*"; }

# skipped WHAT WHY: says loudly that something was not tested. It is listed at the end of the run.
skipped() {
    echo "SKIPPED real/$NAME/$1: $2"
    [[ -z ${THRUFS_SKIPPED:-} ]] || echo "real/$NAME/$1: $2" >>"$THRUFS_SKIPPED"
}

# Fails the script, with the servers' last messages.
fail() {
    echo "$NAME: FAILED: $*" >&2
    local point
    for point in "${!SERVER_LOG[@]}"; do
        echo "--- log of the server at $point" >&2
        tail -n 30 "${SERVER_LOG[$point]}" >&2 || true
    done
    exit 1
}

# expect WHAT ACTUAL WANTED
expect() { [[ $2 == "$3" ]] || fail "$1: got '$2', wanted '$3'"; }

need() {
    local program
    for program; do
        command -v "$program" >/dev/null || fail "no such program: $program (cargo xtask setup)"
    done
}

clean_up() {
    local code=$? point pid
    trap - EXIT INT TERM
    set +e
    # What the script itself has to take down; its outcome is not that of the script.
    if declare -F tear_down >/dev/null; then tear_down; fi
    cd /
    # Ours alone, the innermost first.
    while read -r point; do
        umount "$point" 2>/dev/null || umount --lazy "$point"
    done < <(awk -v top="$WORK/" 'index($2, top) == 1 { print $2 }' /proc/self/mounts | sort -r)
    for pid in "${SERVER_PID[@]}"; do
        kill -KILL "$pid" 2>/dev/null
    done
    wait 2>/dev/null
    rm -rf --one-file-system "$WORK" "${GUEST_LOWER[@]}"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# lower DIRECTORY SIZE [MKFS ARGUMENT...]: a fresh file system of the kind $LOWER at DIRECTORY. In a
# guest, the host has made it, and DIRECTORY is a part of it.
lower() {
    local directory=$1 size=$2
    shift 2
    mkdir -p "$directory"
    if [[ $SERVE == guest ]]; then
        GUEST_LOWER[$directory]=$(mktemp -d "$BENEATH/$NAME.XXXXXX")
        chmod 755 "${GUEST_LOWER[$directory]}"
        mount --bind "${GUEST_LOWER[$directory]}" "$directory"
        return
    fi
    if [[ $LOWER == tmpfs ]]; then
        mount -t tmpfs -o "size=$size,mode=755" tmpfs "$directory"
        return
    fi
    local image
    image=$WORK/image-$(basename "$directory")
    truncate -s "$size" "$image"
    case $LOWER in
        ext4) mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=1 "$@" "$image" ;;
        xfs) mkfs.xfs -q -f "$image" ;;
        btrfs) mkfs.btrfs -q -f "$image" ;;
        *) fail "LOWER=$LOWER is none of ext4, xfs, btrfs, tmpfs" ;;
    esac
    mount -o loop "$image" "$directory"
    rmdir "$directory/lost+found" 2>/dev/null || true
}

# native DIRECTORY: on a lower file system, a place for what is compared with a mount. In a guest that
# file system is a share as well, so there it is one that the guest's kernel has by itself.
native() {
    mkdir "$1"
    [[ $SERVE != guest ]] || mount -t tmpfs -o mode=755 tmpfs "$1"
}

# shared DIRECTORY: in a guest, the same directory of a lower file system in the share under test.
shared() {
    local directory
    for directory in "${!GUEST_LOWER[@]}"; do
        [[ $1 == "$directory"/* ]] || continue
        echo "$SHARED${GUEST_LOWER[$directory]#"$BENEATH"}${1#"$directory"}"
        return
    done
    fail "$1 is in no lower file system"
}

# all_options OPTIONS: with those for every mount, and the transport.
all_options() {
    local options=$1${OPTIONS:+,$OPTIONS}
    [[ $options == *transport=* ]] || options=$options,transport=$TRANSPORT
    echo "$options"
}

# has_ring MOUNTPOINT: whether requests come by io_uring.
has_ring() { find "/proc/$(server_pid "$1")/fd" -lname 'anon_inode:\[io_uring\]' | grep -q .; }

# comes_by MOUNTPOINT OPTIONS: fails unless requests come as the options say. A server that may not
# use io_uring serves all the same.
comes_by() {
    case $2 in
        *transport=uring*) has_ring "$1" || fail "requests to $1 do not come by io_uring (cargo xtask setup)" ;;
        *) ! has_ring "$1" || fail "requests to $1 come by io_uring" ;;
    esac
}

# serve SOURCE MOUNTPOINT [OPTIONS]: mounts, and returns once the mount answers. SERVE_WITH may
# hold a command to start the server with, such as `prlimit --nofile=1024`.
serve() {
    local source=$1 point=$2 options
    options=$(all_options "${3:-allow_other}")
    mkdir -p "$point"
    case $SERVE in
        native) mount --bind "$source" "$point"; return ;;
        guest) mount --bind "$(shared "$source")" "$point"; return ;;
    esac
    local log
    log=$WORK/log-$(basename "$point")
    : >>"$log"
    SERVER_LOG[$point]=$log
    if [[ $options == *transport=relay* ]]; then
        relay "$source" "$point" "$options"
    else
        # shellcheck disable=SC2086 # SERVE_WITH is words
        ${SERVE_WITH:-} "$THRUFS" mount -f -o "$options" "$source" "$point" >>"$log" 2>&1 </dev/null &
        SERVER_PID[$point]=$!
    fi
    local turn
    for ((turn = 0; turn < 200; turn++)); do
        if mountpoint -q "$point" && stat "$point" >/dev/null 2>&1; then
            comes_by "$point" "$options"
            return
        fi
        kill -0 "${SERVER_PID[$point]}" 2>/dev/null || fail "the server ended before it mounted"
        sleep 0.05
    done
    fail "no mount at $point within 10 s"
}

# relay SOURCE MOUNTPOINT OPTIONS: as serve, by the queues of a virtio-fs device.
relay() {
    local source=$1 point=$2 options socket log turn
    socket=$WORK/socket-$(basename "$point")
    log=${SERVER_LOG[$point]}
    # Options that a share does not have: access to the mount, and passthrough.
    options=$(tr , '\n' <<<"$3" | { grep -vxE 'allow_other|transport=relay|(no)?passthrough|' || true; } | paste -sd,)
    # Shared maps in every cache mode, and trusted attributes, as a mount has them.
    options=control=none,allow_mmap,modcaps=+sys_admin${options:+,$options}
    # shellcheck disable=SC2086 # SERVE_WITH is words
    ${SERVE_WITH:-} "$THRUFS" share --socket "$socket" -o "$options" "$source" >>"$log" 2>&1 </dev/null &
    SERVER_PID[$socket]=$!
    for ((turn = 0; turn < 200; turn++)); do
        [[ ! -S $socket ]] || break
        kill -0 "${SERVER_PID[$socket]}" 2>/dev/null || fail "the share ended before it had a socket"
        sleep 0.05
    done
    "$THRUFS_CLIENT" --socket "$socket" mount "$point" >>"$log" 2>&1 </dev/null &
    SERVER_PID[$point]=$!
}

# ended POINT: the process of POINT must be gone within 10 s and have succeeded.
ended() {
    local pid=${SERVER_PID[$1]} turn code=0
    for ((turn = 0; turn < 200; turn++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    ! kill -0 "$pid" 2>/dev/null || fail "the server of $1 is still there 10 s after unmounting"
    wait "$pid" || code=$?
    unset "SERVER_PID[$1]"
    expect "exit status of the server of $1" "$code" 0
}

# unserve MOUNTPOINT: unmounts; the server must be gone within 10 s and have succeeded.
unserve() {
    local point=$1
    if [[ $SERVE != thrufs ]]; then
        umount "$point"
        return
    fi
    "$THRUFS" unmount "$point" || fail "thrufs unmount $point: exit status $?"
    ! mountpoint -q "$point" || fail "$point is still mounted after thrufs unmount"
    ended "$point"
    local socket
    socket=$WORK/socket-$(basename "$point")
    if [[ -n ${SERVER_PID[$socket]:-} ]]; then
        # It waits for the next front end until SIGTERM.
        kill -TERM "${SERVER_PID[$socket]}"
        ended "$socket"
    fi
}

# server_pids MOUNTPOINT: the processes that hold the mount's connection open, the one with the most
# threads, which answers requests, first. The kernel tells the connection's number in fdinfo.
server_pids() {
    local device descriptors pid
    device=$(awk -v point="$1" '$5 == point { split($3, numbers, ":"); device = numbers[2] }
        END { print device }' /proc/self/mountinfo)
    [[ -n $device ]] || fail "$1 is not mounted"
    for descriptors in /proc/[0-9]*/fdinfo; do
        if grep -aqs "^fuse_connection:[[:space:]]*$device\$" "$descriptors"/*; then
            pid=$(cut -d/ -f3 <<<"$descriptors")
            echo "$(awk '/^Threads/ { print $2 }' "/proc/$pid/status") $pid"
        fi
    done | sort -rn | awk '{ print $2 }'
}

# server_pid MOUNTPOINT: the process that answers requests.
server_pid() {
    local pids
    mapfile -t pids < <(server_pids "$1")
    ((${#pids[@]} > 0)) || fail "no process serves $1"
    echo "${pids[0]}"
}

# resident_bytes PID: its memory, without pages shared with files.
resident_bytes() { awk '/^RssAnon/ { print $2 * 1024 }' "/proc/$1/status"; }

# statistics MOUNTPOINT NAME: a figure from the line that the server logs on SIGUSR1.
statistics() {
    local point=$1 name=$2 log=${SERVER_LOG[$1]} before line turn
    before=$(grep -c "$name=" "$log" || true)
    kill -USR1 "$(server_pid "$point")"
    for ((turn = 0; turn < 100; turn++)); do
        if (($(grep -c "$name=" "$log" || true) > before)); then
            # The log may be coloured.
            line=$(grep "$name=" "$log" | tail -n 1 | sed 's/\x1b\[[0-9;]*m//g')
            sed -E "s/.*\b$name=([0-9]+).*/\1/" <<<"$line"
            return
        fi
        sleep 0.05
    done
    fail "the server logged no $name= within 5 s of SIGUSR1"
}

drop_caches() { sync && echo 3 >/proc/sys/vm/drop_caches; }

# describe DIRECTORY: every file beneath, with all that it has, in a form to compare.
describe() {
    (
        cd "$1"
        # Type, mode, links, owner, size (but not of directories: it is the lower file system's
        # own affair), mtime, target; then devices, xattrs, ACLs, contents.
        find . -mindepth 1 \( -type d -printf '%P %y %m %U %G %T@\n' \) -o \
            -printf '%P %y %m %n %U %G %s %T@ %l\n' | LC_ALL=C sort
        find . -mindepth 1 \( -type b -o -type c \) -exec stat -c '%n device %t:%T' {} + |
            LC_ALL=C sort
        find . -mindepth 1 -print0 | LC_ALL=C sort -z |
            xargs -0 -r getfattr -h -d -m '^(user|trusted|security)\.' -e hex -- 2>/dev/null || true
        find . -mindepth 1 ! -type l -print0 | LC_ALL=C sort -z |
            xargs -0 -r getfacl -n -p -- 2>/dev/null || true
        find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum --
    )
}

# same_trees WHAT A B
same_trees() {
    describe "$2" >"$WORK/describe-a"
    describe "$3" >"$WORK/describe-b"
    [[ -s $WORK/describe-a ]] || fail "$1: nothing to compare in $2"
    if ! diff -u "$WORK/describe-a" "$WORK/describe-b" >"$WORK/describe-diff"; then
        head -n 40 "$WORK/describe-diff" >&2
        fail "$1: $2 and $3 differ"
    fi
}
