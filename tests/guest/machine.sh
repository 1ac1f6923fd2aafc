# shellcheck shell=bash
# Sourced by what boots guests, on the host: servers of shares, guests, what their consoles say.
#
#   GUEST      `uml` or `qemu`
#   QEMU       the folder of the emulator, with all its libraries
#   QEMU_WINDOW  the same of one that maps files into a guest, if a script needs it
#   KERNEL     what to boot
#   INITRAMFS  what to boot it with: tests/guest/job.sh and all that it runs
#   SERVER     `thrufs` or `virtiofsd`: how PROGRAM is called
#   PROGRAM    the server
#   OPTIONS    of the share under test, as after `-o`
#   LOWER      the file system that is served
#   MEMORY     of a guest, such as 1024M
#   LIMIT      how long a guest may take from its start to its end, in seconds
#   ACCOUNT    a file for the whole of what the consoles said
#
# `cargo xtask vm-test` runs such scripts in namespaces of their own and under a time limit: what is
# left behind goes with them.
SERVE=native
# shellcheck source=tests/real/mount.sh
source "$(dirname "${BASH_SOURCE[0]}")/../real/mount.sh"
# What guest.sh adds to what virtiofsd is called with.
VIRTIOFSD_OPTIONS=()
declare -A SHARE_TAG=() SHARE_QUEUES=() GUEST_PID=() CONSOLE_PID=() GUEST_START=() ASKED=()

# More arguments of QEMU, and what it does when the guest reboots.
QEMU_MORE=()
# More words for the kernel of an emulated guest.
KERNEL_MORE=
ON_REBOOT=-no-reboot
# Where a share is plugged in, if it may be taken out, and the size of its DAX window, if it has one.
declare -A BUS=() WINDOW=()
# The monitors of emulated guests by their numbers, and how many there were.
declare -A MONITOR_IN=() MONITOR_OUT=()
machines=0

# Its panic would leave a core.
ulimit -c 0

# virtiofsd_options LIST: the same in virtiofsd's words.
virtiofsd_options() {
    local option
    for option in ${1//,/ }; do
        case $option in
            cache=*) echo "--$option" ;;
            writeback) echo --writeback ;;
            acl) echo --posix-acl ;;
            allow_mmap) echo --allow-mmap ;;
            allow_direct_io) echo --allow-direct-io ;;
            *) fail "virtiofsd has nothing like the option $option" ;;
        esac
    done
}

# share NAME OPTIONS [DIRECTORY [TAG]]: starts a server, and returns once its socket is there. The tag,
# by which a guest knows it, is its name unless another is given.
share() {
    local name=$1 options=$2 directory=${3:-$WORK/lower/served} tag=${4:-$1} words named=()
    local socket=$WORK/$name.socket
    SHARE_TAG[$name]=$tag
    # As many as the guest has processors, but for the peer, which can have one.
    SHARE_QUEUES[$name]=2
    [[ $SERVER == thrufs ]] || SHARE_QUEUES[$name]=1
    # QEMU has the tag itself, and from 7.1 to 8.0 dies of a server that has it as well. Its device that has
    # a window knows nothing of file systems, and all of the configuration space is the server's.
    [[ $GUEST == qemu && -z ${WINDOW[$name]:-} ]] || named=(--tag "$tag")
    [[ -z ${WINDOW[$name]:-} ]] ||
        named+=(--queues "${SHARE_QUEUES[$name]}" --dax-window "${WINDOW[$name]}")
    SERVER_LOG[$name]=$WORK/$name.log
    # With SYS_ADMIN, which trusted attributes need.
    case $SERVER in
        thrufs)
            "$PROGRAM" share --socket "$socket" "${named[@]}" --modcaps=+sys_admin ${options:+-o "$options"} \
                "$directory" >"${SERVER_LOG[$name]}" 2>&1 </dev/null &
            ;;
        virtiofsd)
            mapfile -t words < <(virtiofsd_options "$options")
            "$PROGRAM" --socket-path "$socket" "${named[@]}" --shared-dir "$directory" \
                --sandbox=none --xattr --modcaps=+sys_admin "${VIRTIOFSD_OPTIONS[@]}" "${words[@]}" \
                >"${SERVER_LOG[$name]}" 2>&1 </dev/null &
            ;;
        *) fail "SERVER=$SERVER is neither thrufs nor virtiofsd" ;;
    esac
    SERVER_PID[$name]=$!
    local turn
    for ((turn = 0; turn < 200; turn++)); do
        [[ ! -S $socket ]] || return 0
        kill -0 "${SERVER_PID[$name]}" 2>/dev/null || fail "the server of $name ended before it had a socket"
        sleep 0.05
    done
    fail "no socket of $name within 10 s"
}

# share_beneath [NAME]: the share that shows what the host has. Locks in it meet those in the share under
# test where these are shared.
share_beneath() {
    local options=cache=never,allow_mmap,acl
    # sqlite maps files there too, and what has ACLs shows them there as well.
    [[ $OPTIONS != *locks=shared* ]] || options+=,locks=shared
    share "${1:-beneath}" "$options" "$WORK/lower/served" beneath
}

# ended NAME: the guests are gone. virtiofsd ends with its guest; ours waits for the
# next one until SIGTERM.
ended() {
    local name=$1 pid=${SERVER_PID[$1]} turn code=0
    [[ $SERVER != thrufs ]] || kill -TERM "$pid" 2>/dev/null || fail "the server of $name ended by itself"
    for ((turn = 0; turn < 200; turn++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    ! kill -0 "$pid" 2>/dev/null || fail "the server of $name is still there 10 s after the guest"
    wait "$pid" || code=$?
    unset "SERVER_PID[$name]"
    expect "exit status of the server of $name" "$code" 0
}

uml() { # uml GUEST SHARE...
    local guest=$1 devices=() name cpus=2
    shift
    # On several, User-Mode Linux (7.3) loses one store in some thousand through a shared map of which a page
    # is written back meanwhile. On one it loses none.
    [[ ,$OPTIONS, != *,writeback,* ]] || cpus=1
    for name; do devices+=("virtio_uml.device=$WORK/$name.socket:26"); done
    # The guest's memory is a file that the servers map: in memory here.
    TMPDIR=$WORK/memory exec "$KERNEL" mem="$MEMORY" seccomp=on ncpus=$cpus initrd="$INITRAMFS" \
        "${devices[@]}" uml_dir="$WORK/uml" umid="$guest" con=null con0=null,fd:1 quiet \
        thrufs.guest="$guest"
}

# fs NAME: the arguments of a device.
fs() {
    local device=",id=device-$1,chardev=$1${BUS[$1]:+,bus=${BUS[$1]}}" queues=${SHARE_QUEUES[$1]}
    if [[ -n ${WINDOW[$1]:-} ]]; then
        # A configuration space as that of virtio-fs (device 26), and a queue more for urgent requests.
        device="vhost-user-test-device-pci$device,virtio-id=26,config_size=44,vq_size=1024,num_vqs=$((queues + 1))"
    else
        device="vhost-user-fs-pci$device,tag=${SHARE_TAG[$1]},queue-size=1024,num-request-queues=$queues"
    fi
    printf '%s\n' -chardev "socket,id=$1,path=$WORK/$1.socket" -device "$device"
}

qemu() { # qemu GUEST SHARE...
    local guest=$1 name devices=() words
    shift
    for name; do
        mapfile -t words < <(fs "$name")
        devices+=("${words[@]}")
    done
    # QEMU 7.2 emulates cmpxchg16b with several processors wrongly: it leaves nonsense in the flags, on
    # which Linux 6.12 crashes; the kernel runs without the instruction. A time stamp counter that is emulated
    # on a busy machine was seen to jump by minutes, for which the running process then waited.
    # It is of a later release than what this machine may have, so it gets its own dynamic linker.
    exec "$QEMU/usr/lib64/ld-linux-x86-64.so.2" --library-path "$QEMU/usr/lib/x86_64-linux-gnu" \
        "$QEMU/usr/bin/qemu-system-x86_64" -L "$QEMU/usr/share/qemu" -L "$QEMU/usr/share/seabios" -accel tcg,thread=multi -smp 2 -cpu max,-cx16,-tsc \
        -machine q35,memory-backend=memory -m "$MEMORY" \
        -object "memory-backend-memfd,id=memory,size=$MEMORY,share=on" \
        -nodefaults -no-user-config -display none -serial stdio $ON_REBOOT "${QEMU_MORE[@]}" "${devices[@]}" \
        -kernel "$KERNEL" -initrd "$INITRAMFS" \
        -append "console=ttyS0 quiet panic=-1 $KERNEL_MORE thrufs.guest=$guest"
}

# monitored: gives the next QEMU a monitor, which is called as the number of the machine.
monitored() {
    machines=$((machines + 1))
    local path=$WORK/monitor-$machines in out
    mkfifo "$path.in" "$path.out"
    exec {in}<>"$path.in" {out}<>"$path.out"
    MONITOR_IN[$machines]=$in
    MONITOR_OUT[$machines]=$out
    QEMU_MORE=(-chardev "pipe,id=monitor,path=$path" -mon chardev=monitor,mode=control)
}

# qmp MACHINE COMMAND [ARGUMENTS]: has the monitor do something; what it says is in $RETURNED.
qmp() {
    local machine=$1 line=''
    printf '{"execute":"%s"%s}\n' "$2" "${3:+,\"arguments\":$3}" >&"${MONITOR_IN[$machine]}"
    # Lines that are neither tell what happened.
    while IFS= read -r -t 120 line <&"${MONITOR_OUT[$machine]}"; do
        case $line in
            '{"return":'*) RETURNED=$line; return ;;
            '{"error":'*) fail "$2: $line" ;;
        esac
    done
    fail "$2: no answer of the monitor"
}

# console GUEST [INSIDE]: reads what it says. What the job says goes out as it comes; the account has
# everything. INSIDE is `yes` where the job runs already.
console() {
    local guest=$1 line inside=${2:-} mark=''
    [[ $guest == guest ]] || mark="[$guest] "
    while IFS= read -r line || [[ -n $line ]]; do
        line=${line%$'\r'}
        printf '%s%s\n' "$mark" "$line" >>"$ACCOUNT"
        case $line in
            'thrufs-guest: begin') inside=yes; say "${mark}the guest runs after $(since "$guest") ms" ;;
            'thrufs-guest: exit '*) inside=; echo "${line##* }" >"$WORK/code-$guest" ;;
            'SKIPPED '*)
                printf '%s%s\n' "$mark" "$line"
                [[ -z ${THRUFS_SKIPPED:-} ]] || echo "guest/${line#SKIPPED }" >>"$THRUFS_SKIPPED"
                ;;
            # Of QEMU, for each mapping: the server asks it for nothing, to learn when a mapping is in force.
            *': Shared memory mapping not found at offset 0 with length 0') ;;
            *) [[ -z $inside ]] || printf '%s%s\n' "$mark" "$line" ;;
        esac
    done
}

since() { echo $(((${EPOCHREALTIME/./} - GUEST_START[$1]) / 1000)); }

# boot GUEST SHARE...: starts a guest that has these shares, and does not wait for it.
boot() {
    local guest=$1
    if [[ ! -d $WORK/memory ]]; then
        mkdir "$WORK/memory"
        mount -t tmpfs -o size=100% tmpfs "$WORK/memory"
    fi
    rm -f "$WORK/code-$guest" "$WORK/console-$guest"
    mkfifo "$WORK/console-$guest"
    GUEST_START[$guest]=${EPOCHREALTIME/./}
    console "$guest" <"$WORK/console-$guest" &
    CONSOLE_PID[$guest]=$!
    "$GUEST" "$@" </dev/null >"$WORK/console-$guest" 2>&1 &
    GUEST_PID[$guest]=$!
}

# Whether a guest that was booted has not ended.
runs() { kill -0 "${GUEST_PID[$1]}" 2>/dev/null; }

# finish GUEST: waits for its end; fails unless its job succeeded within the time that it has.
finish() {
    local guest=$1 code
    while runs "$guest"; do
        (($(since "$guest") < LIMIT * 1000)) || overdue "$guest"
        sleep 0.1
    done
    wait "${GUEST_PID[$guest]}" || true
    # Children of a User-Mode Linux may hold its console a moment longer.
    wait "${CONSOLE_PID[$guest]}" || true
    unset "GUEST_PID[$guest]" "CONSOLE_PID[$guest]"
    say "$guest: ended after $(since "$guest") ms"
    # From Linux 7.1 on, a guest's kernel checks the length and the request of answers. The peer does not
    # answer DESTROY.
    [[ $SERVER != thrufs || -n ${PEER:-} ]] || ! grep -E 'virtio-fs: (response|oh\.)' "$ACCOUNT" ||
        fail "$guest: its kernel does not take what our server has answered"
    code=$(cat "$WORK/code-$guest" 2>/dev/null || true)
    [[ $code != 0 ]] || return 0
    tail -n 40 "$ACCOUNT" >&2
    fail "$guest: ${code:+its job ended with }${code:-ended without an exit code}"
}

# overdue GUEST: hangs. Shows what it said, and what its servers have in hand, and ends it.
overdue() {
    local guest=$1 name
    echo "$NAME: $guest: not over after $LIMIT s. The last of its console:" >&2
    tail -n 80 "$ACCOUNT" >&2
    if [[ $SERVER == thrufs ]]; then
        for name in "${!SHARE_TAG[@]}"; do
            echo "--- statistics of $name" >&2
            timeout 5 "$PROGRAM" ctl "$WORK/$name.socket" statistics >&2 || true
        done
    fi
    kill_guest "$guest"
    fail "$guest: not over after $LIMIT s"
}

# kill_guest GUEST: as if its power failed.
kill_guest() {
    kill -KILL "${GUEST_PID[$1]}" 2>/dev/null || true
    wait "${GUEST_PID[$1]}" "${CONSOLE_PID[$1]}" 2>/dev/null || true
    unset "GUEST_PID[$1]" "CONSOLE_PID[$1]"
}

# order GUEST COMMAND: has a guest that runs tests/guest/remote.sh run a command, after those that it was
# given before. They come and go by the directory that the share `beneath` of the guest shows.
order() {
    local place=$WORK/lower/served/remote/$1
    ASKED[$1]=$((${ASKED[$1]:-0} + 1))
    mkdir -p "$place"
    printf '%s\n' "$2" >"$place/new"
    mv "$place/new" "$place/${ASKED[$1]}.command"
}

# answer GUEST: waits for the end of the last command. What it printed is in $ANSWER, what it exited with
# is the status.
answer() {
    local file=$WORK/lower/served/remote/$1/${ASKED[$1]} turn
    for ((turn = 0; turn < 2400; turn++)); do
        if [[ -e $file.code ]]; then
            ANSWER=$(cat "$file.out")
            return "$(cat "$file.code")"
        fi
        runs "$1" || { tail -n 40 "$ACCOUNT" >&2; fail "$1 ended over: $(cat "$file.command")"; }
        sleep 0.05
    done
    tail -n 80 "$ACCOUNT" >&2
    fail "$1 did not answer within 120 s: $(cat "$file.command")"
}

# ask GUEST COMMAND: both.
ask() {
    order "$1" "$2"
    answer "$1"
}

# asks GUEST COMMAND: the same; the command must succeed.
asks() {
    ask "$1" "$2" || fail "$1: exit status $?: $2: $ANSWER"
}

# dismiss GUEST: lets it end; it must end well.
dismiss() {
    order "$1" quit
    finish "$1"
}

tear_down() {
    local guest
    for guest in "${!GUEST_PID[@]}"; do kill -KILL "${GUEST_PID[$guest]}" 2>/dev/null; done
}
