#!/bin/bash
# What a guest is for: started by its first process, once both shares are mounted.
#
# /guest/environment has what the host chose:
#   WHAT     what to run, in this order: `posix`, `property`, or scripts of tests/guest or tests/real
#   LOWER    the file system that the host has beneath the shares
#   OPTIONS  what the share under test was given, as after `-o`
#   SERVER   whose it is: /tests/guest/SERVER.differs has POSIX cases that it does not pass
#   LIMIT    how long each of WHAT may take, in seconds
# The kernel's command line has the name of this guest, where there are several.
set -euo pipefail
set -a
source /guest/environment
SHARED=/shared BENEATH=/beneath
SERVE=guest
GUEST=$(sed -nE 's/.*\bthrufs\.guest=([^ ]*).*/\1/p' /proc/cmdline)
set +a

# differs: the cases that the share does not pass with its options on this file system, each once. Lines after
# `[WORD...]` hold where all the words are options of the share or the file system, those in front of the first
# such line everywhere; behind a case stands what happens instead.
differs() {
    awk -v has=",$LOWER,$OPTIONS," -v holds=1 '
        /^[ \t]*#/ { next }
        /^[ \t]*\[/ {
            gsub(/[][]/, " ")
            holds = 1
            for (word = 1; word <= NF; word++) if (!index(has, "," $word ",")) holds = 0
            next
        }
        NF && holds && !known[$1]++ { print $1 }' "$1"
}

posix() {
    local case known arguments=() ground="guest $LOWER${OPTIONS:+ $OPTIONS}"
    known=$(differs "/tests/guest/$SERVER.differs")
    # By the whole name, the ground in front of it.
    for case in $known; do arguments+=(--skip "$ground: $case"); done
    thrufs-guest-tests posix --quiet --exact "${arguments[@]}"
    # What is known must still be so.
    for case in $known; do
        if thrufs-guest-tests posix --quiet --exact "$ground: $case" >/tmp/differs 2>&1; then
            cat /tmp/differs
            echo "guest: $case: passes, or there is no such case; it is named as one that does not pass"
            return 1
        fi
    done
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

# Run by itself for one of WHAT, so that it has an end.
if (($# > 0)); then
    one "$1"
    exit
fi
echo "guest: Linux $(uname -r), $(nproc) CPUs, $(awk '$2 == "/shared" { print $3, $4 }' /proc/mounts)"
failed=()
# The host says when it ends, and how.
[[ $WHAT != remote ]] || exec bash /tests/guest/remote.sh
for what in $WHAT; do
    start=${EPOCHREALTIME/./}
    word=ok
    timeout --kill-after=10 "$LIMIT" bash "$0" "$what" </dev/null 2>&1 || { word=FAILED; failed+=("$what"); }
    printf 'guest: %-12s %-8s %6d ms\n' "$what" "$word" $(((${EPOCHREALTIME/./} - start) / 1000))
done
if ((${#failed[@]} > 0)); then
    echo "guest: failed: ${failed[*]}"
    exit 1
fi
