#!/bin/bash
# Builds the kernel of the User-Mode Linux guest. What was interrupted goes on where it was.
#
#   uml.sh PACKAGE FRAGMENT DIRECTORY KERNEL
#
# PACKAGE is a folder with Debian's linux-source, FRAGMENT the configuration, DIRECTORY a place to build in, which is
# removed in the end, KERNEL what is made.
set -euo pipefail
package=$1 fragment=$2 directory=$3 kernel=$4
[[ ! -e $kernel ]] || exit 0

if [[ ! -e $directory/unpacked ]]; then
    rm -rf "$directory"
    mkdir -p "$directory/source"
    xz -dc "$package"/usr/src/linux-source-*.tar.xz | tar -x -C "$directory/source" --strip-components=1
    : >"$directory/unpacked"
fi
cd "$directory/source"
make -s ARCH=um defconfig
sed 's/^#? //' "$fragment" >>.config
make -s ARCH=um olddefconfig 2>&1 | { grep -v 'override: reassigning' || true; }
wrong=
while read -r line; do
    case $line in
        CONFIG_*) grep -qxF -- "$line" .config || wrong+=" ${line}" ;;
        '# CONFIG_'*) ! grep -q "^$(cut -d' ' -f2 <<<"$line")=" .config || wrong+=" $(cut -d' ' -f2 <<<"$line")" ;;
    esac
done <"$fragment"
[[ -z $wrong ]] || { echo "uml.sh: this kernel does not take from $fragment:$wrong" >&2; exit 1; }
# The same program from the same source.
export KBUILD_BUILD_USER=thrufs KBUILD_BUILD_HOST=thrufs KBUILD_BUILD_TIMESTAMP=@0
make -s ARCH=um -j"${JOBS:-$(nproc)}" linux
strip -o "$kernel.new" linux
mv "$kernel.new" "$kernel"
rm -rf "$directory"
