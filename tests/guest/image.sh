#!/bin/bash
# Puts together what a guest boots into: programs of this machine with the libraries that they need, the
# tests, and modules of the kernel.
#
#   image.sh DIRECTORY PROGRAM...
#
# DIRECTORY is made; a PROGRAM is what scripts use beside what every script may.
#
#   DEBUG   a directory with the tests' own programs
#   SERVED  a server that the guest has as well, if any
#   SOAK    the soak of following, if the guest runs it
#   KERNEL  a folder with modules of the kernel, if it has any
#   TOOLS   where programs are that Debian does not have, as in PATH
set -euo pipefail
source=$PWD image=$1
shift
fail() { echo "image.sh: $*" >&2; exit 1; }

# The PATH of the caller may have other programs of these names.
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:$TOOLS
programs=(awk basename bash cat chmod chown cmp comm cp cut date dd diff dirname du env expr false find
    getfacl getfattr grep head id install kill ln ls md5sum mkdir mkfifo mknod mktemp mount mountpoint mv
    nproc paste printf ps readlink realpath rm rmdir sed seq sh sha256sum sleep sort stat sync tail tee
    test timeout touch tr true truncate umount uname uniq wc xargs "$@")

# What a guest with PCI needs to see the shares, in the order of loading. What a kernel has built in is
# not among its modules.
modules=(virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci dax fuse virtiofs netfs
    9pnet 9pnet_virtio 9p)

mkdir -p "$image"/{dev,etc,guest/modules,proc,root,run,sys,tests,tmp,usr/bin,usr/lib,usr/lib64}
cd "$image"
ln -s usr/bin bin
ln -s usr/bin sbin
ln -s bin usr/sbin
ln -s usr/lib lib
ln -s usr/lib64 lib64
printf '%s\n' root:x:0:0:root:/root:/usr/bin/bash daemon:x:1:1:daemon:/:/usr/bin/false \
    nobody:x:65534:65534:nobody:/:/usr/bin/false >etc/passwd
printf '%s\n' root:x:0: daemon:x:1: nogroup:x:65534: >etc/group

# Files of this machine at the same places in the image.
same() {
    local path
    for path; do cp -rL --parents "$path" .; done
}

# What a program needs beside itself.
for program in "$@"; do
    case $program in
        dbench) same /usr/share/dbench ;;
        git)
            programs+=(git-receive-pack git-upload-pack)
            same /usr/share/git-core/templates
            ;;
        gcc)
            programs+=(ar as cc ld)
            # What only the compiler calls, what is linked with every program, and the headers that a test
            # includes, by a rule for make.
            linked=("$(gcc -print-prog-name=cc1)" "$(gcc -print-prog-name=collect2)")
            for name in Scrt1.o crt{i,n,beginS,endS}.o libc.so libc_nonshared.a libgcc.a libgcc_s.so \
                liblto_plugin.so; do
                linked+=("$(gcc -print-file-name=$name)")
            done
            mapfile -t -O "${#linked[@]}" linked < <(
                gcc -O1 -D_GNU_SOURCE -M "$source/tests/real/client.c" | grep -o '/[^ ]*\.h')
            mapfile -t linked < <(realpath "${linked[@]}" | sort -u)
            same "${linked[@]}"
            ;;
    esac
done
for program in "${programs[@]}"; do
    path=$(type -P "$program") || fail "no such program: $program (cargo xtask setup)"
    cp -L "$path" "usr/bin/$program"
done
cp "$DEBUG/thrufs-guest-init" init
cp "$DEBUG"/thrufs-{guest-tests,test-helper} usr/bin
[[ -z ${SERVED:-} ]] || cp "$SERVED" usr/bin/thrufs
[[ -z ${SOAK:-} ]] || { cp "$SOAK" usr/bin/thrufs-soak && cp "$DEBUG/thrufs-client" usr/bin; }

# The libraries of all of them. The last is loaded when it is needed, so that no program names it.
find . -type f -perm /111 -exec ldd {} + >"$image.libraries" 2>/dev/null || true
mapfile -t libraries < <(sed -nE 's/^\t(.* => )?(\/[^ ]+) \(0x.*/\2/p' "$image.libraries" | sort -u)
missing=$(grep 'not found$' "$image.libraries" || true)
rm "$image.libraries"
[[ -z $missing ]] || fail "a library is missing: $missing"
for path in "${libraries[@]}"; do
    same "$path"
    [[ $path != */libc.so.6 ]] || same "${path%/*}/libgcc_s.so.1"
done

for module in ${KERNEL:+"${modules[@]}"}; do
    path=$(find "$KERNEL" -name "${module//_/[-_]}.ko*" -print -quit)
    [[ -n $path ]] || continue
    number=$((${number:-10} + 1))
    cp "$path" "guest/modules/$number-${path##*/}"
    [[ $path != *.xz ]] || xz -d "guest/modules/$number-${path##*/}"
done
cp -r "$source"/tests/{guest,real} tests
cp "$source/tests/guest/job.sh" guest
