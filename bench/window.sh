#!/bin/bash
# Measures reads through the DAX window of `thrufs share` beside READ requests to the same server, both made by
# `thrufs-client`, which is the guest and the machine monitor.
#
# Called by `cargo xtask bench --window`.
#
#   window.sh [--window SIZE] [ARGUMENT of thrufs-client window...]
set -euo pipefail
: "${THRUFS:?the command}"
THRUFS_CLIENT=${THRUFS_CLIENT:-$(dirname "$THRUFS")/thrufs-client}
window=64M
[ "${1:-}" != --window ] || { window=$2 && shift 2; }

work=$(mktemp -d)
clean_up() {
    kill "$server" 2>/dev/null || true
    wait
    mountpoint -q "$work/lower" && umount "$work/lower"
    rm -rf --one-file-system "$work"
}
server=
trap clean_up EXIT
trap 'exit 130' INT TERM
mkdir "$work/lower"
mount -t tmpfs -o size=4G none "$work/lower"
"$THRUFS" share --socket "$work/socket" --dax-window "$window" --dax '*.img' --dax-min-size 4K "$work/lower" 2>"$work/log" &
server=$!
for _ in $(seq 100); do
    [ ! -S "$work/socket" ] || break
    sleep 0.1
done
"$THRUFS_CLIENT" --socket "$work/socket" window "$@"
