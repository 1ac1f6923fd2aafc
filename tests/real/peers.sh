#!/bin/bash
# The servers that benchmarks compare with: each script of bench/peers installs its peer, tells its version and
# becomes its server, and the benchmark measures a little of each. What is built is kept in $PEERS (default:
# target/peers); with an empty one, everything is fetched and built anew.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need flock

[[ $SERVE == thrufs ]] || { say "peers are started by the host's own scripts"; exit 0; }
SCRIPTS=$PROJECT/bench/peers
# As the scripts themselves have it, for the benchmark too.
export PROJECT PEERS=${PEERS:-$PROJECT/target/peers}
# Those that mount, as the benchmark has them.
MOUNTING=(passthrough passthrough_ll passthrough_hp bindfs mergerfs go-fuse)

# is_version WHAT TEXT: a number with a point in it.
is_version() { [[ $2 =~ ^[0-9]+\.[0-9]+ && $2 != *$'\n'* ]] || fail "$1 tells its version as '$2'"; }

# stopped PID: ends a server that a script has become.
stopped() {
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

lower "$WORK/lower" 1G
# What an archive or the network does not give is skipped, and said.
there=()
for peer in "${MOUNTING[@]}"; do
    say "$peer"
    if ! "$SCRIPTS/$peer" install </dev/null; then
        skipped "$peer" "it cannot be installed here"
        continue
    fi
    there+=("$peer")
    is_version "$peer" "$("$SCRIPTS/$peer" version)"
    # In the foreground, at a path with a space in it.
    mkdir "$WORK/lower/tree of $peer" "$WORK/mnt-$peer"
    echo "by $peer" >"$WORK/lower/tree of $peer/file"
    "$SCRIPTS/$peer" start "$WORK/lower/tree of $peer" "$WORK/mnt-$peer" </dev/null &
    SERVER_PID[$peer]=$!
    for ((turn = 0; turn < 300; turn++)); do
        [[ ! -e $WORK/mnt-$peer/file ]] || break
        kill -0 "${SERVER_PID[$peer]}" 2>/dev/null || fail "$peer has ended"
        sleep 0.1
    done
    expect "a file through $peer" "$(cat "$WORK/mnt-$peer/file")" "by $peer"
    echo more >>"$WORK/mnt-$peer/file"
    expect "what was written through $peer" "$(tail -n 1 "$WORK/lower/tree of $peer/file")" more
    umount "$WORK/mnt-$peer"
    stopped "${SERVER_PID[$peer]}"
    unset "SERVER_PID[$peer]"
done

# All that the benchmark has to know of them.
((${#there[@]} > 0)) || fail "there is no peer at all"
mkdir "$WORK/bench"
(IFS=, && RESULTS=$WORK/bench "$PROJECT/bench/run.py" peers --targets "${there[*]}" --rows stat-warm,create,write-4k,git-status \
    --rounds 1 --percent 1 --name trial </dev/null) || fail "the benchmark with peers"
for peer in "${there[@]}"; do
    for row in stat-warm create write-4k git-status; do
        grep -q "\"row\": \"$row\", \"contestant\": \"$peer\".*\"samples\": \[{" "$WORK/bench/trial.json" ||
            fail "the benchmark has no figure of $peer in $row"
    done
done

# virtiofsd has a socket in place of a mount point.
say virtiofsd
"$SCRIPTS/virtiofsd" install </dev/null || fail "virtiofsd was not installed"
is_version virtiofsd "$("$SCRIPTS/virtiofsd" version)"
mkdir "$WORK/lower/share"
"$SCRIPTS/virtiofsd" start "$WORK/lower/share" "$WORK/socket" </dev/null &
SERVER_PID[virtiofsd]=$!
for ((turn = 0; turn < 300; turn++)); do
    [[ ! -S $WORK/socket ]] || break
    kill -0 "${SERVER_PID[virtiofsd]}" 2>/dev/null || fail "virtiofsd has ended"
    sleep 0.1
done
echo 20 getattr | "$THRUFS_CLIENT" --socket "$WORK/socket" bench --file-bytes 4194304 --entries 10 >"$WORK/said" ||
    fail "thrufs-client bench at virtiofsd"
grep -Eq '^[1-9][0-9]* [0-9]+$' "$WORK/said" || fail "nothing was measured of virtiofsd: $(cat "$WORK/said")"
stopped "${SERVER_PID[virtiofsd]}"
unset "SERVER_PID[virtiofsd]"

# What only says where it is measured.
code=0
said=$("$SCRIPTS/9p" start "$WORK/lower" "$WORK/mnt-9p" 2>&1) || code=$?
expect "9p ends with" "$code" 2
[[ $said == *bench/guest.py* ]] || fail "9p says: $said"

# A script refuses what makes no sense.
for words in "" "start" "start $WORK/lower" "install twice" "shout"; do
    # shellcheck disable=SC2086 # They are words.
    ! "$SCRIPTS/bindfs" $words 2>/dev/null || fail "bindfs takes '$words'"
done
say "all peers serve"
