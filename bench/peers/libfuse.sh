#!/bin/bash
# Builds the peer of the benchmark: libfuse's example server passthrough_hp, from Debian's source
# package, into $PEERS/passthrough_hp. As root on Debian; does nothing when it is there already.
set -euo pipefail
VERSION=3.18.3
SUITE=forky
PEERS=${PEERS:?the directory to build into}
[[ -x $PEERS/passthrough_hp ]] && exit 0

mkdir -p "$PEERS"
work=$(mktemp -d "$PEERS/libfuse.XXXXXX")
trap 'rm -rf "$work"' EXIT

DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install \
    dpkg-dev g++ gcc meson ninja-build pkg-config debian-archive-keyring >/dev/null

# A view of the archive of its own, so that the machine's package lists stay as they are. The
# mirror is the one that the machine uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $SUITE main" >"$work/sources.list"
archive=(-o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$work/state/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get -qq "${archive[@]}" update
version=$(apt-cache "${archive[@]}" showsrc fuse3 | awk '/^Version:/ { print $2 }' | grep "^$VERSION" | head -n 1)
[[ $version ]] || { echo "libfuse $VERSION is not in $SUITE any more" >&2; exit 1; }
(cd "$work" && apt-get -qq "${archive[@]}" source --only-source "fuse3=$version")

source=$(find "$work" -maxdepth 1 -type d -name 'fuse3-*')
meson setup --buildtype=release -Dexamples=true -Dtests=false -Dutils=false \
    -Denable-io-uring=false --default-library=static "$work/build" "$source" >"$work/log" 2>&1 ||
    meson setup --buildtype=release -Dexamples=true -Dtests=false -Dutils=false \
        --default-library=static "$work/build" "$source" --wipe >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; exit 1; }
ninja -C "$work/build" example/passthrough_hp >>"$work/log" 2>&1 || { tail -n 30 "$work/log" >&2; exit 1; }
cp "$work/build/example/passthrough_hp" "$PEERS/"
