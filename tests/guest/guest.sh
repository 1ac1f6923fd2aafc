#!/bin/bash
# Serves a directory to a guest, boots the guest, and ends as the guest's job ends. The guest has two
# shares of the directory: `shared`, with $OPTIONS, and `beneath`, which caches nothing. A third, `project`,
# is for tests/guest/workspace.sh.
# shellcheck source=tests/guest/machine.sh
source "$(dirname "$0")/machine.sh"

# By file handles, as is its default, a file that is replaced while it is opened is ESTALE now and then: it
# has nothing else that leads there, and the kernel tries twice.
VIRTIOFSD_OPTIONS=(--inode-file-handles=never)
lower "$WORK/lower" 2G
mkdir "$WORK/lower/served"
share shared "$OPTIONS"
share_beneath
shares=(shared beneath)
if [[ $SERVER == thrufs ]]; then
    mkdir "$WORK/lower/served/project"
    share project "policy=$PROJECT/dist/policies/workspace.toml" "$WORK/lower/served/project"
    shares+=(project)
fi
boot guest "${shares[@]}"
finish guest
for name in "${shares[@]}"; do ended "$name"; done
