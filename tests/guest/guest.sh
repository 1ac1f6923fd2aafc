#!/bin/bash
# Serves a directory to a guest, boots the guest, and ends as the guest's job ends. The guest has two
# shares of the directory: `shared`, with $OPTIONS, and `beneath`, which caches nothing.
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/machine.sh"

# By file handles, as is its default, a file that is replaced while it is opened is ESTALE now and then: it
# has nothing else that leads there, and the kernel tries twice.
VIRTIOFSD_OPTIONS=(--inode-file-handles=never)
lower "$WORK/lower" 2G
mkdir "$WORK/lower/served"
share shared "$OPTIONS"
share_beneath
boot guest shared beneath
finish guest
ended shared
ended beneath
