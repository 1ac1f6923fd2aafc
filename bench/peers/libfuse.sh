#!/bin/bash
# libfuse's example servers, from the source package of Debian's testing release, with meson and with io_uring.
# A script of one sources this and defines `start`.
# shellcheck source=bench/peers/peer.sh
source "$(dirname "${BASH_SOURCE[0]}")/peer.sh"

PACKAGES=(meson ninja-build pkg-config gcc g++ liburing-dev libnuma-dev)
MEASURED=3.18
LIBFUSE=$PEERS/libfuse-$MEASURED
# That of the script which sources this.
PROGRAM=$LIBFUSE/${0##*/}
EXAMPLES=(passthrough passthrough_ll passthrough_hp hello_ll)

get() {
    local source built example
    source=$("$HERE/debian-source" fuse3 "$MEASURED" forky "$PEERS")
    built=$source/build-peers
    rm -rf "$built"
    # It sets flags as programs of libfuse 2 did, and takes that of io_uring away by it.
    sed -i '/conn->want/d' "$source/example/hello_ll.c"
    meson setup -Dutils=false -Dtests=false -Dexamples=true --buildtype=release -Ddefault_library=static \
        -Denable-io-uring=true "$built" "$source"
    ninja -C "$built" "${EXAMPLES[@]/#/example/}"
    # It is left out without a word where no library for it is found.
    grep -q '#define HAVE_URING' "$built/fuse_config.h" ||
        fail "libfuse was built without io_uring: are liburing-dev and libnuma-dev there?"
    # The last step: a program that is there is complete.
    mkdir -p "$LIBFUSE"
    for example in "${EXAMPLES[@]}"; do
        cp "$built/example/$example" "$LIBFUSE/$example.new"
        mv "$LIBFUSE/$example.new" "$LIBFUSE/$example"
    done
}

version() { "$LIBFUSE/passthrough_ll" --version | sed -n 's/^FUSE library version \([0-9.]*\).*/\1/p'; }
