#!/bin/bash
# Whether tests notice changes of the code: cargo-mutants with `.cargo/mutants.toml`. A run continues where the last
# one ended. `cargo xtask mutants` starts this, with more arguments of cargo-mutants.
#
#   MUTANTS  cargo-mutants
#   OUTPUT   a directory for what it finds
set -euo pipefail

packages=(thrufs thrufs-hostdir thrufs-sys thrufs-virtio thrufs-tests)
# Tests in one process, without a mount of ours.
programs=(--lib --test={served,sharing,succession,copies,device})
# Those of them that are slow or random.
skipped=(--skip={migration::,arbitrary_descriptors_and_requests_are_survived}
    --skip={arbitrary_vhost_user_messages_are_survived,any_byte_of_a_state,scribbled_on,whoever_goes_on})
# Time limit of a mutant's tests, in seconds: ten times the usual.
limit=120

export CARGO_PROFILE_DEV_DEBUG=none RUST_BACKTRACE=0
mkdir -p "$OUTPUT"
if [[ " $* " != *" --list"* && " $* " != *" --help "* ]]; then
    # Unchanged, they pass: cargo-mutants itself would only try those of the changed packages.
    cargo test "${packages[@]/#/--package=}" "${programs[@]}" -- "${skipped[@]}"
fi
"$MUTANTS" mutants --iterate --no-shuffle --caught --colors=never --baseline=skip --timeout "$limit" \
    --output "$OUTPUT" "${packages[@]/#/--test-package=}" "${programs[@]/#/--cargo-arg=}" \
    --cargo-test-arg=-- "${skipped[@]/#/--cargo-test-arg=}" "$@"
