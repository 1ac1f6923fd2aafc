#!/bin/bash
# What the scripts of peers have in common. Each sets
#
#   PACKAGES   the Debian packages that it needs, by exact name
#   MEASURED   how the version begins that results in this repository were measured with
#   PROGRAM    where the program is; without a slash, one that the system finds
#
# defines `get` (what PACKAGES does not do), `version` (one line) and `start SOURCE MOUNTPOINT OPTION...` (becomes
# the server, in the foreground), and ends with `peer "$@"`.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PROJECT=${PROJECT:-$(dirname "$(dirname "$HERE")")}
# Where what is built is kept.
PEERS=${PEERS:-${CARGO_TARGET_DIR:-$PROJECT/target}/peers}
export PROJECT PEERS
PACKAGES=()
MEASURED=
PROGRAM=

have() { command -v "$PROGRAM" >/dev/null; }

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

get() { :; }

# packages NAME...: installs those that are missing.
packages() {
    local name missing=()
    for name; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    [[ $EUID == 0 ]] || fail "root is needed to install: apt-get install --no-install-recommends ${missing[*]}"
    echo "${0##*/}: installing from Debian: ${missing[*]}" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update >&2
    apt-get -qq -y --no-install-recommends install "${missing[@]}" >&2
}

# debian_version PACKAGE: as upstream numbers it.
debian_version() { dpkg-query -W -f '${source:Upstream-Version}\n' "$1"; }

install() {
    mkdir -p "$PEERS"
    # One at a time: the next finds it done.
    exec 9>"$PEERS/lock"
    flock 9
    if ! have; then
        packages "${PACKAGES[@]}"
        get >&2
        have || fail "is not there after it was installed"
    fi
    exec 9>&-
    local found
    found=$(version)
    [[ $found == "$MEASURED"* ]] || echo "${0##*/}: this is $found; results here are of $MEASURED" >&2
}

usage() {
    echo "usage: ${0##*/} install | version | where | start SOURCE MOUNTPOINT [OPTION...]" >&2
    exit 2
}

peer() {
    case ${1:-} in
        install) [[ $# == 1 ]] || usage && install ;;
        version) [[ $# == 1 ]] || usage && have && version ;;
        where) [[ $# == 1 ]] || usage && have && echo "$PROGRAM" ;;
        start)
            [[ $# -ge 3 ]] || usage
            install
            start "${@:2}"
            ;;
        *) usage ;;
    esac
}
