#!/bin/bash
# Measures memory and descriptors of a mount: idle, unused ring entries, and so many
# files walked under 1024 descriptors, with the marks by which they are followed. Called by
# `cargo xtask bench --memory`.
#
#   memory.sh [--files N] [--name NAME]
#
# --files N: walk so many (default 1000000); 10000000 take some ten minutes and 16 GB of disk space in all.
# --name NAME: write the figures to bench/results/NAME-memory-N.json.
set -euo pipefail
: "${THRUFS:?the command}" "${PROJECT:?the repository}"

files=1000000 name=
while [ $# -gt 0 ]; do
    case $1 in
        --files) files=$2 && shift 2 ;;
        --name) name=$2 && shift 2 ;;
        *) echo "memory.sh: what is $1?" >&2 && exit 2 ;;
    esac
done

# shellcheck source=tests/real/mount.sh
source "$PROJECT/tests/real/mount.sh"

# sum FIELD FILE PID...: a line of a file of each process, in bytes.
sum() {
    local field=$1 file=$2 pid
    shift 2
    for pid; do
        awk -v field="$field:" '$1 == field { print $2 * 1024 }' "/proc/$pid/$file"
    done | awk '{ sum += $1 } END { printf "%d\n", sum }'
}

# idle OPTIONS: mounts, lets it rest, and leaves the figures in $idle: what its processes have resident, what
# of it they would give back, and what of that is no file.
idle() {
    local pids
    SERVE_WITH='' serve "$WORK/source" "$WORK/mnt" "allow_other,$1"
    sleep 2
    mapfile -t pids < <(server_pids "$WORK/mnt")
    idle=$(printf '{"options": "%s", "processes": %d, "resident": %d, "proportional": %d, "anonymous": %d}' \
        "$1" "${#pids[@]}" "$(sum Rss smaps_rollup "${pids[@]}")" "$(sum Pss smaps_rollup "${pids[@]}")" \
        "$(sum Anonymous smaps_rollup "${pids[@]}")")
    say "idle: $idle"
    unserve "$WORK/mnt"
}

mkdir "$WORK/source"
idle=
idles=()
for options in transport=dev transport=uring transport=uring,ring_depth=8 transport=uring,ring_depth=64; do
    idle "$options"
    idles+=("$idle")
done

say "walking $files files"
MILLION=$files FIGURES=$WORK/walked bash "$PROJECT/tests/real/million.sh"

made=$(
    cat <<END
{
  "kind": "memory",
  "kernel": "$(uname -r)",
  "processor": "$(sed -n 's/^model name[^:]*: //p;T;q' /proc/cpuinfo)",
  "processors": $(nproc),
  "version": "$("$THRUFS" --version | head -1)",
  "commit": "$(git -C "$PROJECT" rev-parse --short HEAD)",
  "idle": [$(IFS=, && echo "${idles[*]}")],
  "walked": $(cat "$WORK/walked")
}
END
)
echo "$made"
[ -z "$name" ] || echo "$made" >"$PROJECT/bench/results/$name-memory-$files.json"
