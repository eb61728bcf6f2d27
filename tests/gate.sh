#!/usr/bin/env bash
# What `make test` runs: tests that may run beside others in two processes, then the rest alone.
# A test that fails beside others is run once more, alone: its limits are short, and others took the processors.
# Usage: tests/gate.sh PYTHON
set -u
python=$1
STARK_BUILD_STORE=$(mktemp -d) # one store of builds for all processes
export STARK_BUILD_STORE
trap 'rm -rf "$STARK_BUILD_STORE"' EXIT
left_out="gpu or live or long" # by name, or by `make test-long`

half() { # NAME ARGUMENTS...: those of its tests that may run beside others
    local name=$1
    shift
    "$python" -m pytest -o "cache_dir=$STARK_BUILD_STORE/cache-$name" -m "not ($left_out or alone)" "$@"
}

first=(tests/agents tests/evaluator tests/fastbuild tests/recipes tests/release) # about half of the time
second=("${first[@]/#/--ignore=}")
half first "${first[@]}" > "$STARK_BUILD_STORE/first.txt" 2>&1 &
half second "${second[@]}"
second_status=$?
wait $!
first_status=$?
cat "$STARK_BUILD_STORE/first.txt"
if [ $first_status = 1 ]; then
    half first --last-failed --last-failed-no-failures none "${first[@]}"
    first_status=$?
fi
if [ $second_status = 1 ]; then
    half second --last-failed --last-failed-no-failures none "${second[@]}"
    second_status=$?
fi
"$python" -m pytest -m "alone and not ($left_out)"
alone_status=$?
exit $((first_status || second_status || alone_status))
