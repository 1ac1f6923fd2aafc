#!/bin/bash
# Serves a directory to a guest, boots the guest, and ends as the guest's job ends. The guest has two
# shares of the directory: `shared`, with $OPTIONS, and `beneath`, which caches nothing.
#
#   GUEST      `uml` or `qemu`
#   KERNEL     what to boot
#   INITRAMFS  what to boot it with: tests/guest/job.sh and all that it runs
#   SERVER     `thrufs` or `virtiofsd`: how PROGRAM is called
#   PROGRAM    the server
#   OPTIONS    of the share under test, as after `-o`
#   LOWER      the file system that is served
#   MEMORY     of the guest, such as 1024M
#   ACCOUNT    a file for the whole of what the console said
#
# `cargo xtask vm-test` runs this in namespaces of its own and under a time limit: what is left behind
# goes with them.
SERVE=native
# shellcheck source=tests/real/mount.sh
source "$(dirname "$0")/../real/mount.sh"

lower "$WORK/lower" 2G
mkdir "$WORK/lower/served"

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

# share TAG OPTIONS: starts a server, and returns once its socket is there.
share() {
    local tag=$1 options=$2 words named=()
    local socket=$WORK/$tag.socket
    # QEMU has the tag itself, and from 7.1 to 8.0 dies of a server that has it as well.
    [[ $GUEST == qemu ]] || named=(--tag "$tag")
    SERVER_LOG[$tag]=$WORK/$tag.log
    # With SYS_ADMIN, which trusted attributes need.
    case $SERVER in
        thrufs)
            "$PROGRAM" share --socket "$socket" "${named[@]}" --modcaps=+sys_admin ${options:+-o "$options"} \
                "$WORK/lower/served" >"${SERVER_LOG[$tag]}" 2>&1 </dev/null &
            ;;
        virtiofsd)
            mapfile -t words < <(virtiofsd_options "$options")
            "$PROGRAM" --socket-path "$socket" "${named[@]}" --shared-dir "$WORK/lower/served" \
                --sandbox=none --xattr --modcaps=+sys_admin "${words[@]}" \
                >"${SERVER_LOG[$tag]}" 2>&1 </dev/null &
            ;;
        *) fail "SERVER=$SERVER is neither thrufs nor virtiofsd" ;;
    esac
    SERVER_PID[$tag]=$!
    local turn
    for ((turn = 0; turn < 200; turn++)); do
        [[ ! -S $socket ]] || return 0
        kill -0 "${SERVER_PID[$tag]}" 2>/dev/null || fail "the server of $tag ended before it had a socket"
        sleep 0.05
    done
    fail "no socket of $tag within 10 s"
}

# ended TAG: the guest is gone. virtiofsd ends with it; ours waits for the next one, until it is told.
ended() {
    local tag=$1 pid=${SERVER_PID[$1]} turn code=0
    [[ $SERVER != thrufs ]] || kill -TERM "$pid" 2>/dev/null || fail "the server of $tag ended by itself"
    for ((turn = 0; turn < 200; turn++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    ! kill -0 "$pid" 2>/dev/null || fail "the server of $tag is still there 10 s after the guest"
    wait "$pid" || code=$?
    unset "SERVER_PID[$tag]"
    expect "exit status of the server of $tag" "$code" 0
}

uml() {
    # The guest's memory is a file that the servers map: in memory here.
    mkdir "$WORK/memory"
    mount -t tmpfs -o size=100% tmpfs "$WORK/memory"
    # Its panic would leave a core.
    ulimit -c 0
    TMPDIR=$WORK/memory exec "$KERNEL" mem="$MEMORY" seccomp=on ncpus=2 initrd="$INITRAMFS" \
        virtio_uml.device="$WORK/shared.socket:26" virtio_uml.device="$WORK/beneath.socket:26" \
        uml_dir="$WORK/uml" umid=guest con=null con0=null,fd:1 quiet
}

# fs TAG QUEUES: the arguments of a device.
fs() {
    printf '%s\n' -chardev "socket,id=$1,path=$WORK/$1.socket" \
        -device "vhost-user-fs-pci,chardev=$1,tag=$1,queue-size=1024,num-request-queues=$2"
}

qemu() {
    local queues=2 devices
    # The peer has one.
    [[ $SERVER == thrufs ]] || queues=1
    mapfile -t devices < <(fs shared "$queues"; fs beneath 1)
    # QEMU 7.2 emulates cmpxchg16b with several processors wrongly: it leaves nonsense in the flags, on
    # which Linux 6.12 falls over. Without it the kernel does without.
    exec qemu-system-x86_64 -accel tcg,thread=multi -smp 2 -cpu max,-cx16 \
        -machine q35,memory-backend=memory -m "$MEMORY" \
        -object "memory-backend-memfd,id=memory,size=$MEMORY,share=on" \
        -nodefaults -no-user-config -display none -serial stdio -no-reboot "${devices[@]}" \
        -kernel "$KERNEL" -initrd "$INITRAMFS" -append "console=ttyS0 quiet panic=-1"
}

share shared "$OPTIONS"
# sqlite maps files there too, and what has ACLs shows them there as well.
share beneath cache=never,allow_mmap,acl
start=${EPOCHREALTIME/./}
since() { echo $(((${EPOCHREALTIME/./} - start) / 1000)); }

# What the job says goes out as it comes; the account has everything.
code= inside=
while IFS= read -r line || [[ -n $line ]]; do
    line=${line%$'\r'}
    echo "$line" >>"$ACCOUNT"
    case $line in
        'thrufs-guest: begin') inside=yes; say "the guest runs after $(since) ms" ;;
        'thrufs-guest: exit '*) inside=; code=${line##* } ;;
        *) [[ -z $inside ]] || echo "$line" ;;
    esac
done < <("$GUEST" </dev/null 2>&1)
say "the guest ended after $(since) ms"
[[ -n $code ]] || { tail -n 40 "$ACCOUNT" >&2; fail "the guest ended without an exit code"; }
if [[ $code != 0 ]]; then
    tail -n 5 "$ACCOUNT" >&2
    fail "the guest's job ended with $code"
fi
ended shared
ended beneath
