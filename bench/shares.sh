#!/bin/bash
# Measures `thrufs share` beside virtiofsd, both driven by `thrufs-client bench` as a guest would, in
# interleaved rounds. Called by `cargo xtask bench --shares`, which says where the programs are.
#
#   shares.sh [--lower tmpfs|ext4] [--queues N] [--name NAME] [ARGUMENT of thrufs-client bench...]
#
# --queues N: ours has so many; virtiofsd has one, so with more, ours with one is measured beside it.
# --name NAME: write the table and every sample to bench/results/NAME-shares-LOWER-qN.{md,json}.
set -euo pipefail
: "${THRUFS:?the command}" "${VIRTIOFSD:?the peer}" "${PROJECT:?the repository}"
THRUFS_CLIENT=${THRUFS_CLIENT:-$(dirname "$THRUFS")/thrufs-client}

lower=tmpfs queues=1 name=
while [ $# -gt 0 ]; do
    case $1 in
        --lower) lower=$2 && shift 2 ;;
        --queues) queues=$2 && shift 2 ;;
        --name) name=$2 && shift 2 ;;
        *) break ;;
    esac
done

work=$(mktemp -d)
servers=()
clean_up() {
    local server
    for server in "${servers[@]}"; do
        kill "$server" 2>/dev/null || true
    done
    wait
    mountpoint -q "$work/lower" && umount "$work/lower"
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

mkdir "$work/lower"
case $lower in
    tmpfs) mount -t tmpfs -o size=2G none "$work/lower" ;;
    ext4)
        truncate -s 4G "$work/image"
        mkfs.ext4 -q "$work/image"
        mount -o loop "$work/image" "$work/lower"
        ;;
    *) echo "shares.sh: no such file system: $lower" >&2 && exit 2 ;;
esac

# By the name that the kernel knows it by.
wait_for_socket() {
    local _
    for _ in $(seq 100); do
        [ -S "$1" ] && return
        sleep 0.1
    done
    echo "shares.sh: no server listens at $1" >&2
    exit 1
}

# ours NAME QUEUES
ours() {
    mkdir "$work/lower/$1"
    "$THRUFS" share --socket "$work/$1.socket" --queues "$2" "$work/lower/$1" 2>"$work/$1.log" &
    servers+=($!)
    wait_for_socket "$work/$1.socket"
}

others=()
ours thrufs "$queues"
if [ "$queues" = 1 ]; then
    mkdir "$work/lower/virtiofsd"
    "$VIRTIOFSD" --socket-path="$work/virtiofsd.socket" --shared-dir="$work/lower/virtiofsd" \
        2>"$work/virtiofsd.log" &
    servers+=($!)
    wait_for_socket "$work/virtiofsd.socket"
    others=(--against "virtiofsd=$work/virtiofsd.socket")
fi

table() {
    echo "Linux $(uname -r), $(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo), $(nproc) CPUs," \
        "commit $(git -C "$PROJECT" rev-parse --short HEAD)"
    echo "$("$THRUFS" --version | head -1), $("$VIRTIOFSD" --version | head -1), $lower below," \
        "queues of ours: $queues"
    echo
    "$THRUFS_CLIENT" --socket "$work/thrufs.socket" --queues "$queues" bench "${others[@]}" \
        --json "$work/samples.json" "$@"
}

table "$@" | tee "$work/table.md"
if [ -n "$name" ]; then
    results=$PROJECT/bench/results/$name-shares-$lower-q$queues
    cp "$work/table.md" "$results.md"
    cp "$work/samples.json" "$results.json"
fi
