#!/bin/bash
# What goes wrong beneath, above and inside: a clear error at the client, nothing lost that was
# acknowledged, no mistaking a dead mount for the directory beneath, a mount again that works.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need prlimit fallocate

# refused WHAT PATTERN COMMAND...: the command fails within 10 s, saying one of PATTERN.
refused() {
    local what=$1 pattern=$2 code=0
    shift 2
    timeout -k 1 10 "$@" >"$WORK/refused" 2>&1 || code=$?
    ((code != 0)) || fail "$what: succeeded"
    ((code != 124 && code != 137)) || fail "$what: no answer within 10 s"
    grep -qE "$pattern" "$WORK/refused" || { cat "$WORK/refused" >&2; fail "$what: another error than $pattern"; }
}

# answers WHAT COMMAND...: the command succeeds within 10 s.
answers() {
    local what=$1 code=0
    shift
    timeout -k 1 10 "$@" >"$WORK/answers" 2>&1 || code=$?
    ((code == 0)) || { cat "$WORK/answers" >&2; fail "$what: exit status $code"; }
}

vanishing_source() {
    mkdir -p "$WORK/lower/vanish/sub"
    echo kept >"$WORK/lower/vanish/file"
    echo gone >"$WORK/lower/vanish/sub/file"
    serve "$WORK/lower/vanish" "$WORK/mnt" allow_other,cache=never
    exec 7<"$WORK/mnt/file"
    rm -rf "$WORK/lower/vanish"
    # What is open stays readable, as natively.
    expect "an open file after its source vanished" "$(cat <&7)" kept
    exec 7<&-
    refused "a file of the vanished source" 'No such file|Stale' stat "$WORK/mnt/file"
    refused "a file of a vanished directory" 'No such file|Stale' cat "$WORK/mnt/sub/file"
    refused "creating in the vanished source" 'No such file|Stale' touch "$WORK/mnt/new"
    unserve "$WORK/mnt"
    say "source vanishing: clear errors, clean unmount"
}

full_disk() { # full_disk OPTIONS
    LOWER=ext4 lower "$WORK/small" 24M
    mkdir "$WORK/small/served"
    head -c 64M /dev/urandom >"$WORK/random"
    serve "$WORK/small/served" "$WORK/mnt" "$1"
    echo precious >"$WORK/mnt/before"
    head -c 3M /dev/zero >"$WORK/mnt/room"
    sync "$WORK/mnt/before" "$WORK/mnt/room"
    # Each block is on disk before dd counts it.
    refused "writing to a full disk ($1)" 'No space left' \
        dd if="$WORK/random" of="$WORK/mnt/big" bs=64k oflag=dsync
    local blocks
    blocks=$(sed -nE 's/^([0-9]+)\+[0-9]+ records out$/\1/p' "$WORK/refused")
    ((blocks > 16)) || fail "only $blocks blocks fit on a disk of 24 MB"
    refused "an fsync or close on a full disk" 'No space left' \
        dd if="$WORK/random" of="$WORK/mnt/more" bs=1M count=30 conv=fsync
    cmp -n $((blocks * 65536)) "$WORK/random" "$WORK/mnt/big" || fail "acknowledged data is not there ($1)"
    expect "a file from before the disk was full" "$(cat "$WORK/mnt/before")" precious
    refused "fallocate on a full disk" 'No space left' fallocate -l 20M "$WORK/mnt/big2"
    # Room again: everything goes on.
    rm -f "$WORK/mnt/more" "$WORK/mnt/big2" "$WORK/mnt/room"
    # The kernel's RELEASE follows a close in its own time; with it the space comes back.
    local turn
    for ((turn = 0; turn < 20; turn++)); do
        dd if="$WORK/random" of="$WORK/mnt/after" bs=64k count=4 conv=fsync status=none 2>"$WORK/no-room" && break
        sleep 0.1
    done
    ((turn < 20)) || { df "$WORK/small" >&2; cat "$WORK/no-room" >&2; fail "no room 2 s after rm"; }
    unserve "$WORK/mnt"
    umount "$WORK/small"
    mount -o loop "$WORK/image-small" "$WORK/small"
    cmp -n $((blocks * 65536)) "$WORK/random" "$WORK/small/served/big" || fail "acknowledged data is not on disk ($1)"
    cmp -n 262144 "$WORK/random" "$WORK/small/served/after" || fail "data written after is not on disk ($1)"
    umount "$WORK/small"
    say "disk full ($1): ENOSPC at the client, $blocks blocks acknowledged and all there"
}

# in_background: `thrufs mount` without -f, as people use it; answers when it returns.
in_background() {
    if [[ $SERVE == native ]]; then
        serve "$@"
        return
    fi
    SERVER_LOG[$2]=$WORK/log-$(basename "$2")
    local options
    options=$(all_options "allow_other,log_file=${SERVER_LOG[$2]}${3:+,$3}")
    "$THRUFS" mount -o "$options" "$1" "$2" </dev/null || fail "thrufs mount: exit status $?"
    mountpoint -q "$2" || fail "thrufs mount returned before there was a mount"
    comes_by "$2" "$options"
}

# mounted POINT: by the table of mounts, asking no file system.
mounted() { awk -v point="$1" '$2 == point { found = 1 } END { exit !found }' /proc/self/mounts; }

killed_server() { # killed_server worker|supervisor|both [auto_unmount]
    local more=${2:-}
    rm -rf "$WORK/lower/killed" "$WORK/acknowledged"
    mkdir "$WORK/lower/killed"
    # The bare directory is read-only: what is acknowledged went through the mount.
    local bare=$WORK/bare
    mkdir "$bare"
    mount -t tmpfs -o mode=755 tmpfs "$bare"
    mkdir "$bare/mnt"
    mount -o remount,ro "$bare"
    in_background "$WORK/lower/killed" "$bare/mnt" "$more"
    [[ $SERVE != native ]] || { umount "$bare/mnt" "$bare"; rmdir "$bare"; return 0; }
    # Records on stable storage, each acknowledged once it is.
    (
        set +e
        for ((n = 1; n < 100000; n++)); do
            printf '%07d\n' "$n" | dd of="$bare/mnt/records" oflag=append,dsync conv=notrunc status=none \
                2>/dev/null || break
            echo "$n" >"$WORK/acknowledged"
        done
    ) &
    local writer=$! pids turn answer waited=0
    # Big writes in flight as well.
    dd if=/dev/zero of="$bare/mnt/big" bs=1M count=2000 status=none 2>/dev/null &
    local big=$! acknowledged
    sleep 1
    # However slow the disk is: there has to be something that could be lost.
    for ((turn = 0; turn < 300; turn++)); do
        acknowledged=$(cat "$WORK/acknowledged" 2>/dev/null || true)
        ((${acknowledged:-0} <= 5)) || break
        sleep 0.1
    done
    # Two processes hold the mount: the one with more threads is the worker.
    mapfile -t pids < <(server_pids "$bare/mnt")
    expect "processes that hold the mount" "${#pids[@]}" 2
    case $1 in
        worker) kill -KILL "${pids[0]}" ;;
        supervisor) kill -KILL "${pids[1]}" ;;
        both) kill -KILL "${pids[@]}" ;;
    esac
    # Within two seconds it is what it is to be: dead, or the bare directory.
    for ((turn = 0; turn < 40; turn++)); do
        # While the mount is there, attributes that the kernel remembers may still be answered.
        answer=$(timeout -k 1 5 stat -f "$bare/mnt" 2>&1) || true
        if [[ -n $more ]]; then
            mounted "$bare/mnt" || break
        elif [[ $answer == *"Transport endpoint is not connected"* ]]; then
            break
        fi
        sleep 0.05
        waited=$((waited + 50))
    done
    ((turn < 40)) || fail "2 s after the $1 was killed: $answer"
    wait "$writer" "$big" || true
    if [[ -z $more ]]; then
        mounted "$bare/mnt" || fail "the mount of a killed $1 is gone"
        "$THRUFS" unmount "$bare/mnt" || fail "unmounting after the $1 was killed"
    fi
    wait "$writer" || true
    wait "$big" || true
    local acknowledged
    acknowledged=$(cat "$WORK/acknowledged")
    ((acknowledged > 5)) || fail "only $acknowledged records were written"
    head -n "$acknowledged" "$WORK/lower/killed/records" >"$WORK/records"
    seq -f '%07.0f' 1 "$acknowledged" | cmp - "$WORK/records" || fail "acknowledged records were lost"
    # After the last clean-up, the processes of the server are all gone.
    for ((turn = 0; turn < 40; turn++)); do
        pgrep -f "^thrufs --(supervisor|worker|auto-unmount) .*$bare/mnt\$" >/dev/null || break
        sleep 0.05
    done
    ! pgrep -af "^thrufs --(supervisor|worker|auto-unmount) .*$bare/mnt\$" >&2 || fail "a process of the killed server stays"
    in_background "$WORK/lower/killed" "$bare/mnt"
    head -n "$acknowledged" "$bare/mnt/records" | cmp - "$WORK/records" || fail "records read through a new mount"
    "$THRUFS" unmount "$bare/mnt" || fail "unmounting the second mount"
    umount "$bare"
    rmdir "$bare"
    rm -r "$WORK/lower/killed"
    say "killed: $1: $acknowledged acknowledged records, all there; ${more:-ENOTCONN} after $waited ms; mounted again"
}

# What SIGTERM does while clients are busy.
terminated_server() {
    [[ $SERVE != native ]] || return 0
    mkdir -p "$WORK/lower/terminated"
    serve "$WORK/lower/terminated" "$WORK/mnt"
    dd if=/dev/zero of="$WORK/mnt/big" bs=1M count=3000 status=none 2>/dev/null &
    local client=$! turn start=$SECONDS
    (cd "$WORK/mnt" && exec sleep 60) &
    local sitting=$!
    sleep 0.5
    kill -TERM "${SERVER_PID[$WORK/mnt]}"
    for ((turn = 0; turn < 400; turn++)); do
        kill -0 "${SERVER_PID[$WORK/mnt]}" 2>/dev/null || break
        sleep 0.05
    done
    ((turn < 400)) || fail "the server is still there 20 s after SIGTERM"
    kill -KILL "$client" "$sitting" 2>/dev/null || true
    wait "$client" "$sitting" 2>/dev/null || true
    wait "${SERVER_PID[$WORK/mnt]}" || true
    unset "SERVER_PID[$WORK/mnt]"
    ! mountpoint -q "$WORK/mnt" || fail "still mounted after SIGTERM"
    answers "the bare directory" stat "$WORK/mnt"
    rm -r "$WORK/lower/terminated"
    say "SIGTERM while busy: unmounted after $((SECONDS - start)) s"
}

killed_client() {
    mkdir -p "$WORK/lower/client"
    serve "$WORK/lower/client" "$WORK/mnt"
    local turn client
    for turn in 1 2 3 4 5; do
        dd if=/dev/urandom of="$WORK/mnt/file-$turn" bs=256k count=100000 status=none &
        client=$!
        sleep 0.2
        kill -KILL "$client" || fail "the client ended before it was killed"
        wait "$client" 2>/dev/null || true
        answers "the mount after its client was killed" stat "$WORK/mnt/file-$turn"
        (($(stat -c %s "$WORK/mnt/file-$turn") > 0)) || fail "the killed client wrote nothing"
        answers "what it wrote, above and beneath" cmp "$WORK/mnt/file-$turn" "$WORK/lower/client/file-$turn"
    done
    if [[ $SERVE != native ]]; then
        for ((turn = 0; turn < 40; turn++)); do
            (($(statistics "$WORK/mnt" open_files) > 0)) || break
            sleep 0.1
        done
        expect "files still open after their clients were killed" "$(statistics "$WORK/mnt" open_files)" 0
    fi
    unserve "$WORK/mnt"
    say "client killed in the middle of a write: the mount goes on, nothing stays open"
}

descriptor_limit() {
    mkdir -p "$WORK/lower/limit"
    local n
    for ((n = 0; n < 1200; n++)); do echo "$n" >"$WORK/lower/limit/f$n"; done
    SERVE_WITH="prlimit --nofile=512:512" serve "$WORK/lower/limit" "$WORK/mnt"
    # The client may open far more than the server.
    cat >"$WORK/open-many.sh" <<'OPEN'
ulimit -n 4096
opened=0
for ((n = 0; n < 1200; n++)); do
    { exec {descriptor}<"$1/f$n"; } 2>>"$2" || break
    opened=$((opened + 1))
done
echo "$opened"
# While as many are open as go: names and attributes of the others are there.
stat -c %s "$1"/f11{00..99} >/dev/null 2>>"$2" || echo "stat fails" >>"$2"
exec sleep 1
OPEN
    : >"$WORK/open-errors"
    local opened
    opened=$(timeout 60 bash "$WORK/open-many.sh" "$WORK/mnt" "$WORK/open-errors") || true
    if ((opened < 1200)); then
        grep -qE 'Too many open files' "$WORK/open-errors" ||
            { cat "$WORK/open-errors" >&2; fail "at the limit the client sees another error"; }
    fi
    ! grep -v 'Too many open files' "$WORK/open-errors" >&2 || fail "more went wrong at the limit"
    ((opened >= 256)) || fail "only $opened files could be opened under a limit of 512"
    # All closed: everything works again.
    for ((n = 0; n < 1200; n += 100)); do
        expect "f$n after the limit" "$(cat "$WORK/mnt/f$n")" "$n"
    done
    unserve "$WORK/mnt"
    say "descriptor limit of 512: $opened files open at once, then a clear error, then all is well"
}

lower "$WORK/lower" 2G
vanishing_source
full_disk allow_other
full_disk allow_other,writeback
killed_server worker
killed_server supervisor
killed_server both
killed_server worker auto_unmount
killed_server supervisor auto_unmount
killed_server both auto_unmount
terminated_server
killed_client
descriptor_limit
