#!/bin/bash
# Counts instead of times: requests per operation, from the kernel's tracepoint, and system calls
# per request, from strace, over /dev/fuse and over io_uring. They are exact on a noisy machine, so
# exceeding them fails.
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/mount.sh"
need gcc strace taskset

[[ $SERVE != native ]] || { say "natively there is nothing to count"; exit 0; }
TRACING=/sys/kernel/tracing
[[ -d $TRACING/events ]] || mount -t tracefs tracefs $TRACING
[[ -d $TRACING/events/fuse/fuse_request_send ]] || fail "this kernel has no tracepoint fuse:fuse_request_send"
TRACE=$TRACING/instances/$(basename "$WORK")
mkdir "$TRACE"
tear_down() {
    echo 0 >"$TRACE/tracing_on"
    echo 0 >"$TRACE/events/enable"
    rmdir "$TRACE"
}
echo 0 >"$TRACE/tracing_on"

# The client: system calls on the mount and nothing else. It warms up, then writes 1 to the switch
# it was given, works, waits for what comes in the background, and writes 0.
gcc -O1 -Wall -D_GNU_SOURCE -o "$WORK/client" "$(dirname "$0")/client.c"

# exceeded WHAT: said at once, and the script fails at its end, when everything has been counted.
EXCEEDED=0
exceeded() {
    echo "$NAME: EXCEEDED: $*" >&2
    EXCEEDED=$((EXCEEDED + 1))
}

# requests OPERATION TURNS PATH: counts, as `CREATE=1 LOOKUP=1`, of all turns together.
requests() {
    local connection
    connection=$(awk -v point="$WORK/mnt" '$5 == point { split($3, n, ":"); c = n[2] } END { print c }' \
        /proc/self/mountinfo)
    echo "connection == $connection" >"$TRACE/events/fuse/fuse_request_send/filter"
    echo 1 >"$TRACE/events/fuse/fuse_request_send/enable"
    echo 16384 >"$TRACE/buffer_size_kb"
    echo >"$TRACE/trace"
    "$WORK/client" "$TRACE/tracing_on" "$1" "$2" "$3" || fail "the client's $1 failed"
    sed -nE 's/.*fuse_request_send:.*opcode [0-9]+ \(FUSE_([A-Z0-9_]+)\).*/\1/p' "$TRACE/trace" |
        LC_ALL=C sort | uniq -c | awk '{ printf "%s%s=%s", (NR > 1 ? " " : ""), $2, $1 }'
}

# count COUNTS NAME: one of those, 0 when it is not among them.
count() { tr ' ' '\n' <<<"$1" | awk -F= -v name="$2" '$1 == name { n = $2 } END { print n + 0 }'; }

# only WHAT COUNTS NAME=MAX...: no more than these, and no others.
only() {
    local what=$1 counts=$2 bound name
    shift 2
    local rest=" $counts "
    for bound; do
        name=${bound%=*}
        (($(count "$counts" "$name") <= ${bound#*=})) ||
            exceeded "$what: requests $counts, wanted at most $bound"
        rest=$(sed -E "s/ $name=[0-9]+ / /" <<<"$rest")
    done
    [[ -z ${rest// /} ]] || exceeded "$what: requests that should not be:$rest(all: $counts)"
    say "requests: $what: ${counts:-none}"
}

# count_requests OPTIONS WRITES FLUSHES: requests of each operation; of 4096 writes so many are made, and
# of 1000 files that were made, so many are flushed when they are closed.
count_requests() {
    local counts
    serve "$WORK/lower/served" "$WORK/mnt" "$1"
    counts=$(requests stat 1000 "$WORK/mnt/dir/file")
    only "1000 × stat, warm" "$counts"
    counts=$(requests readlink 1000 "$WORK/mnt/dir/link")
    only "1000 × readlink, warm" "$counts"
    counts=$(requests access 1000 "$WORK/mnt/dir/file")
    only "1000 × lookup by access, warm" "$counts"
    counts=$(requests open 1000 "$WORK/mnt/dir/file")
    only "1000 × open and close, warm" "$counts" OPEN=1000 RELEASE=1000
    expect "OPEN per open" "$(count "$counts" OPEN)" 1000
    counts=$(requests create 1000 "$WORK/mnt/dir/new")
    only "1000 × create and close" "$counts" LOOKUP=1000 CREATE=1000 GETATTR=1000 RELEASE=1000 FLUSH="$3"
    expect "CREATE per create" "$(count "$counts" CREATE)" 1000
    counts=$(requests unlink 1000 "$WORK/mnt/dir/new")
    # The names are known: no LOOKUP; each unlink makes the directory's attributes stale.
    only "1000 × unlink" "$counts" UNLINK=1000 GETATTR=1000 FORGET=1000 BATCH_FORGET=1000
    counts=$(requests write 4096 "$WORK/mnt/dir/written")
    only "4096 × write of 4096 bytes" "$counts" WRITE="$2" GETXATTR=1
    expect "WRITE per write" "$(count "$counts" WRITE)" "$2"
    counts=$(requests read 256 "$WORK/mnt/dir/file")
    # A readahead that the rehearsal began may end within the turns.
    only "256 × read of 4096 bytes, warm" "$counts" READ=2
    unserve "$WORK/mnt"
}

# calls OPERATION TURNS PATH: system calls per turn of the server's, into $WORK/calls by name:
# transport (anything on /dev/fuse but ioctl(2), which registers files, rings, and waiting),
# credentials, file system (asking whether there are events of fanotify, too). Prints the last,
# ×100. CLIENTS (1) of them run at once, all on the CPU that PIN names, if it does. With KEEP, the
# client keeps open what it has opened, and is ended when counting is over.
calls() {
    local pid tracer turn client clients=${CLIENTS:-1} running=()
    pid=$(server_pid "$WORK/mnt")
    strace -f -y -qq -o "$WORK/strace" -p "$pid" 2>"$WORK/strace-error" &
    tracer=$!
    for ((turn = 0; turn < 100; turn++)); do
        [[ $(awk '/^TracerPid/ { print $2 }' "/proc/$pid/status") == "$tracer" ]] && break
        sleep 0.05
    done
    ((turn < 100)) || { cat "$WORK/strace-error" >&2; fail "strace does not attach to the server"; }
    sleep 0.3
    # The client's switch switches nothing here.
    : >"$WORK/switch"
    for ((client = 0; client < clients; client++)); do
        ${PIN:+taskset -c "$PIN"} "$WORK/client" "$WORK/switch" "$1" "$2" "$3" &
        running+=($!)
    done
    for client in "${running[@]}"; do
        if [[ -n ${KEEP:-} ]]; then
            has_turned "$client" || fail "the client's $1 failed"
        else
            wait "$client" || fail "the client's $1 failed"
        fi
    done
    sleep 0.2
    kill -INT "$tracer"
    wait "$tracer" || true
    if [[ -n ${KEEP:-} ]]; then
        kill "${running[@]}"
        wait "${running[@]}" || true
    fi
    # What came before the warm-up is done with is little against the turns, and rounded away.
    awk -v turns="$(($2 * clients))" -v monitors="$(monitors "$pid")" '
        BEGIN { split(monitors, list, " "); for (at in list) is_monitor[list[at]] = 1 }
        { thread = $1; sub(/^[0-9]+ +/, "") }
        /^<\.\.\. / || /^[-+]/ || !/^[a-z_0-9]+\(/ { next }
        {
            name = $0; sub(/\(.*/, "", name)
            class = "file system"
            # They look after threads and their callers, every 2 ms, or after changes beneath, every millisecond,
            # and not for each request.
            if (thread in is_monitor) class = "monitor"
            else if (name == "ppoll" && /\[fanotify\]/) class = "file system"
            else if (name != "ioctl" && $0 ~ /^[a-z_0-9]+\([0-9]+<\/dev\/fuse>/ || name ~ /^(io_uring_enter|futex|epoll_wait|epoll_pwait2?|ppoll|poll|restart_syscall|sched_yield|rt_sig.*|madvise|clock_nanosleep|clock_gettime)$/)
                class = "transport"
            else if (name ~ /^(setfsuid|setfsgid|setresuid|setresgid|setuid|setgid|setgroups|capset|capget|prctl|umask|setfsuid32|setfsgid32)$/)
                class = "credentials"
            seen[class "\t" name]++
        }
        END { for (key in seen) printf "%s\t%.2f\n", key, seen[key] / turns }' "$WORK/strace" |
        LC_ALL=C sort >"$WORK/calls"
    awk -F'\t' '$3 >= 0.05' "$WORK/calls" >"$WORK/calls-shown"
    awk -F'\t' '$1 == "file system" { n += $3 } END { printf "%d\n", n * 100 + 0.5 }' "$WORK/calls"
}

# has_turned PID: waits until a client has done its turns, as its switch tells.
has_turned() {
    local turn
    for ((turn = 0; turn < 600; turn++)); do
        [[ $(<"$WORK/switch") != 10 ]] || return 0
        kill -0 "$1" 2>/dev/null || return 1
        sleep 0.05
    done
    return 1
}

# monitors PID: the threads of the transports that look after the others, those that follow changes
# beneath, and the one that frees removed files.
monitors() {
    local thread found=()
    for thread in "/proc/$1/task/"*; do
        [[ $(<"$thread/comm") != @(thrufs-monitor|follow|follow-*|free) ]] || found+=("$(basename "$thread")")
    done
    ((${#found[@]} > 0)) || fail "the server has no thread of the name thrufs-monitor"
    echo "${found[*]}"
}

# at_most WHAT HUNDREDTHS BOUND
at_most() {
    local shown
    shown=$(awk -F'\t' '{ printf "%s %s/%s  ", $3, $2, $1 }' "$WORK/calls-shown")
    # A tenth of a call of slack: the warm-up, the first eviction, housekeeping.
    (($2 <= $3 * 100 + 10)) || exceeded "$1: $(printf '%d.%02d' $(($2 / 100)) $(($2 % 100))) system calls, wanted at most $3: $shown"
    say "system calls: $1: $(printf '%d.%02d' $(($2 / 100)) $(($2 % 100))) (at most $3): $shown"
}

count_calls() {
    local per
    serve "$WORK/lower/served" "$WORK/mnt" allow_other,entry_timeout=3600,attr_timeout=0
    per=$(calls stat 1000 "$WORK/mnt/file")
    # Both the root, for its permissions, and the file are asked for.
    at_most "stat of a known file and its directory: 2 × GETATTR" "$per" 2
    unserve "$WORK/mnt"

    serve "$WORK/lower/served" "$WORK/mnt" allow_other,entry_timeout=0,attr_timeout=3600
    per=$(calls stat 1000 "$WORK/mnt/file")
    at_most "LOOKUP of a known file" "$per" 2
    unserve "$WORK/mnt"

    serve "$WORK/lower/served" "$WORK/mnt" allow_other,nopassthrough
    per=$(calls missing 1000 "$WORK/mnt/dir/absent")
    at_most "LOOKUP of a name that is not there" "$per" 2
    local missing=$per
    per=$(calls create 1000 "$WORK/mnt/dir/other")
    # Of a create: the LOOKUP before, the GETATTR of the directory after. The FLUSH closes the lower file,
    # and keeps what is needed to open it again.
    at_most "CREATE, FLUSH and RELEASE (without LOOKUP, GETATTR)" $((per > missing + 100 ? per - missing - 100 : 0)) 5
    per=$(calls unlink 1000 "$WORK/mnt/dir/other")
    at_most "UNLINK, and GETATTR of the directory" "$per" 5
    per=$(calls direct-read 1000 "$WORK/mnt/dir/file")
    at_most "READ" "$per" 1
    per=$(calls write 1000 "$WORK/mnt/dir/written")
    at_most "WRITE" "$per" 1
    unserve "$WORK/mnt"
}

# What the server does for an open and for a close of a file that was open before, when the kernel
# uses the file beneath by itself. Many files, since an open while another is left costs less: opened
# and kept they tell the one, opened and closed both. Then one file, over and over.
count_through() {
    local transport operation each both opens number file
    for transport in dev uring; do
        if [[ $transport == uring && ! -e /sys/module/fuse/parameters/enable_uring ]]; then
            say "NOT COUNTED: passthrough over io_uring: this kernel has no FUSE over io_uring" >&2
            continue
        fi
        serve "$WORK/lower/served" "$WORK/mnt" "allow_other,entry_timeout=3600,attr_timeout=3600,transport=$transport"
        has_passthrough "$WORK/mnt/file"
        for operation in open open-write; do
            each=open-each${operation#open}
            for ((number = 0; number < FILES; number++)); do
                file=$WORK/mnt/each/file-$number
                read -r <"$file" || fail "$file cannot be read"
            done
            opens=$(KEEP=1 calls "$each-keep" $FILES "$WORK/mnt/each/file")
            # One asks whether there are events, one for attributes: the file is registered once.
            at_most "passthrough, $transport: $operation: OPEN" "$opens" 2
            both=$(calls "$each" $FILES "$WORK/mnt/each/file")
            at_most "passthrough, $transport: $operation: RELEASE, of OPEN and RELEASE" $((both > opens ? both - opens : 0)) 1
            both=$(calls "$operation" 1000 "$WORK/mnt/file")
            at_most "passthrough, $transport: $operation: OPEN and RELEASE over and over" "$both" 2
        done
        unserve "$WORK/mnt"
    done
}

# has_passthrough PATH: fails unless an open of the file uses passthrough.
has_passthrough() {
    local registered
    exec 9<"$1"
    registered=$(statistics "$WORK/mnt" backing_files)
    exec 9<&-
    ((registered >= 1)) || fail "$1 is open and no file is registered for passthrough"
}

# entered: how often a turn went into a ring, ×100. Nothing else of the transport may have happened.
entered() {
    awk -F'\t' '$1 == "transport" && $2 == "io_uring_enter" { n = $3 } END { printf "%d", n * 100 + 0.5 }' "$WORK/calls"
}

# one_enter_each WHAT REQUESTS: so many requests made a turn, and each one io_uring_enter.
one_enter_each() {
    local others times
    times=$(entered)
    others=$(awk -F'\t' '$1 == "transport" && $2 != "io_uring_enter" && $3 >= 0.05 { printf "%s %s  ", $3, $2 }' "$WORK/calls")
    ((times >= $2 * 100 - 10 && times <= $2 * 100 + 10)) ||
        exceeded "$1: $((times / 100)).$((times % 100)) io_uring_enter for $2 requests"
    [[ -z $others ]] || exceeded "$1: calls of the transport besides io_uring_enter: $others"
    say "rings: $1: $(printf '%d.%02d' $((times / 100)) $((times % 100))) io_uring_enter for $2 requests"
}

# busiest_ring_thread PID: of the threads that serve rings, the one that has run longest since the
# last time, and the CPU where it was last.
busiest_ring_thread() {
    local thread stat
    for thread in "/proc/$1/task/"*; do
        [[ $(<"$thread/comm") == thrufs-ring* ]] || continue
        stat=$(<"$thread/stat")
        # The fields behind the name, which is in parentheses: the third is the first.
        echo "$(cut -d' ' -f1 "$thread/schedstat") $(basename "$thread") $(cut -d' ' -f37 <<<"${stat##*) }")"
    done | LC_ALL=C sort -k2 >"$WORK/ring-threads"
    touch "$WORK/ring-threads-before"
    LC_ALL=C join -1 2 -2 2 -o 2.1,1.1,2.2,2.3 "$WORK/ring-threads-before" "$WORK/ring-threads" |
        awk '{ ran = $1 - $2; if (ran > most) { most = ran; at = $3 " " $4 } } END { print at }'
    mv "$WORK/ring-threads" "$WORK/ring-threads-before"
}

# switches PID TID: how often a thread has left its CPU.
switches() {
    awk '/ctxt_switches/ { sum += $2 } END { print sum }' "/proc/$1/task/$2/status"
}

# A caller that stays on its CPU is served there. The scheduler decides it: only `cargo xtask soak` asks.
count_places() {
    local cpu pid found switches
    pid=$(server_pid "$WORK/mnt")
    : >"$WORK/switch"
    for cpu in $(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | awk -F- '{ for (n = $1; n <= $NF; n++) print n }'); do
        busiest_ring_thread "$pid" >/dev/null
        taskset -c "$cpu" "$WORK/client" "$WORK/switch" stat 3000 "$WORK/mnt/file" || fail "the client's stat failed"
        found=$(busiest_ring_thread "$pid")
        [[ ${found#* } == "$cpu" ]] || exceeded "a caller on CPU $cpu was served on CPU ${found#* } (thread ${found% *})"
        say "rings: a caller on CPU $cpu was served on CPU ${found#* }"
        # Another 3000 on the same thread, which sleeps, or gives way, once a request.
        switches=-$(switches "$pid" "${found% *}")
        taskset -c "$cpu" "$WORK/client" "$WORK/switch" stat 3000 "$WORK/mnt/file" || fail "the client's stat failed"
        switches=$((switches + $(switches "$pid" "${found% *}")))
        ((switches <= 3000 * 2 * 130 / 100)) || exceeded "$switches context switches for 6000 requests"
        say "rings: $switches context switches of the serving thread for 6000 requests"
    done
}

count_rings() {
    local depth times cpu requests=2
    cpu=$(taskset -cp $$ | sed -E 's/.*: ([0-9]+).*/\1/')
    local timeouts=allow_other,transport=uring,entry_timeout=3600,attr_timeout=0
    # A stat here is two GETATTR: of the root and of the file. An open and close are OPEN and RELEASE.
    serve "$WORK/fast/served" "$WORK/mnt" "$timeouts,ring_depth=1"
    calls stat 1000 "$WORK/mnt/file" >/dev/null
    one_enter_each "stat, depth 1" $requests
    CLIENTS=4 PIN=$cpu calls stat 500 "$WORK/mnt/file" >/dev/null
    one_enter_each "stat by four on one CPU, depth 1" $requests
    [[ -z ${THRUFS_SOAK:-} ]] || count_places
    unserve "$WORK/mnt"

    serve "$WORK/fast/served" "$WORK/mnt" allow_other,transport=uring,entry_timeout=3600,attr_timeout=3600,ring_depth=1
    calls open 1000 "$WORK/mnt/file" >/dev/null
    one_enter_each "open and close, depth 1" 2
    unserve "$WORK/mnt"

    serve "$WORK/fast/served" "$WORK/mnt" "$timeouts,ring_depth=8"
    CLIENTS=4 PIN=$cpu calls stat 500 "$WORK/mnt/file" >/dev/null
    times=$(entered)
    ((times <= requests * 70)) ||
        exceeded "four callers on one CPU, depth 8: $((times / 100)).$((times % 100)) io_uring_enter for $requests requests"
    say "rings: stat by four on one CPU, depth 8: $(printf '%d.%02d' $((times / 100)) $((times % 100))) io_uring_enter for $requests requests"
    unserve "$WORK/mnt"
}

lower "$WORK/lower" 1G
mkdir -p "$WORK/lower/served/dir"
head -c 4M /dev/urandom >"$WORK/lower/served/dir/file"
# With cache=auto and without passthrough, an open of a file that has changed in the last seconds drops what
# is cached of it, and has the kernel ask for its size.
sleep 4
echo text >"$WORK/lower/served/file"
ln -s file "$WORK/lower/served/dir/link"
# Warm means that the timeouts have not run out: with the second of cache=auto alone they now and
# then would.
timeouts=entry_timeout=3600,attr_timeout=3600
count_requests "allow_other,cache=auto,$timeouts,nopassthrough" 4096 1000
count_requests allow_other,cache=always,nopassthrough 4096 1000
count_requests "allow_other,cache=auto,$timeouts" 0 1000
count_requests "allow_other,cache=auto,$timeouts,locks=local" 0 0
count_calls
mkdir "$WORK/lower/served/each"
FILES=400
for ((number = 0; number < FILES; number++)); do
    echo text >"$WORK/lower/served/each/file-$number"
done
count_through
if [[ -e /sys/module/fuse/parameters/enable_uring ]]; then
    LOWER=tmpfs lower "$WORK/fast" 64M
    mkdir "$WORK/fast/served"
    echo text >"$WORK/fast/served/file"
    count_rings
else
    say "NOT COUNTED: rings: this kernel has no FUSE over io_uring" >&2
fi
((EXCEEDED == 0)) || fail "$EXCEEDED counts exceeded"
