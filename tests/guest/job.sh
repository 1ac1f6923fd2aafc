#!/bin/bash
# What a guest is for: started by its first process, once both shares are mounted.
#
# /guest/environment has what the host chose:
#   WHAT     what to run, in this order: `posix`, `property`, or scripts of tests/guest or tests/real
#   LOWER    the file system that the host has beneath the shares
#   OPTIONS  what the share under test was given, as after `-o`
#   SKIP     POSIX cases that are not asked of this server
set -euo pipefail
set -a
source /guest/environment
SHARED=/shared BENEATH=/beneath
SERVE=guest
set +a

posix() {
    local case arguments=()
    # By the whole name, the ground in front of it.
    for case in $SKIP; do arguments+=(--skip "guest $LOWER${OPTIONS:+ $OPTIONS}: $case"); done
    thrufs-guest-tests posix --quiet --exact "${arguments[@]}"
}

one() {
    case $1 in
        posix) posix ;;
        property) thrufs-guest-tests property ;;
        *)
            local script
            for script in "/tests/guest/$1.sh" "/tests/real/$1.sh"; do
                [[ ! -e $script ]] || { bash "$script"; return; }
            done
            echo "guest: no such script: $1" >&2
            return 1
            ;;
    esac
}

echo "guest: Linux $(uname -r), $(nproc) CPUs, $(awk '$2 == "/shared" { print $3, $4 }' /proc/mounts)"
failed=()
for what in $WHAT; do
    start=${EPOCHREALTIME/./}
    word=ok
    one "$what" </dev/null 2>&1 || { word=FAILED; failed+=("$what"); }
    printf 'guest: %-12s %-8s %6d ms\n' "$what" "$word" $(((${EPOCHREALTIME/./} - start) / 1000))
done
if ((${#failed[@]} > 0)); then
    echo "guest: failed: ${failed[*]}"
    exit 1
fi
