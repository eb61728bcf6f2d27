#!/usr/bin/env bash
# What `make test` runs: four groups of tests beside each other (many tests wait, for a lease or for a
# process), then the whole runs, which need the machine to themselves.  A test that fails is run once
# more: limits are short, and other programs may have taken the processors.
# Usage: tests/gate.sh PYTHON
set -u
python=$1
STARK_BUILD_STORE=$(mktemp -d) # one store of builds for all processes
export STARK_BUILD_STORE
trap 'rm -rf "$STARK_BUILD_STORE"' EXIT
left_out="gpu or live or long" # by name, or by `make test-long`

declare -A folders=(
    [evaluator]="tests/agents tests/evaluator tests/fastbuild tests/release"
    [faults]="tests/faults tests/network"
    [search]="tests/coordinator tests/recipes tests/supervisor tests/watch"
)
named="${folders[*]}"
folders[rest]="tests ${named//tests\//--ignore=tests/}"

group() { # NAME ARGUMENTS...: those of its tests that may run beside others
    local name=$1
    shift
    # shellcheck disable=SC2086  # the folders are words
    "$python" -m pytest -o "cache_dir=$STARK_BUILD_STORE/cache-$name" \
        -m "not ($left_out or alone)" "$@" ${folders[$name]}
}

declare -A processes
for name in "${!folders[@]}"; do
    group "$name" > "$STARK_BUILD_STORE/$name.txt" 2>&1 &
    processes[$name]=$!
done
declare -A statuses
for name in "${!folders[@]}"; do
    wait "${processes[$name]}"
    statuses[$name]=$?
done
failed=0
for name in "${!folders[@]}"; do # no failure is repeated before all groups are done
    cat "$STARK_BUILD_STORE/$name.txt"
    if [ "${statuses[$name]}" = 1 ]; then
        group "$name" --last-failed --last-failed-no-failures none || failed=1
    elif [ "${statuses[$name]}" != 0 ]; then
        failed=1
    fi
done
alone() {
    "$python" -m pytest -o "cache_dir=$STARK_BUILD_STORE/cache-alone" \
        -m "alone and not ($left_out)" "$@" tests/whole
}
alone || alone --last-failed --last-failed-no-failures none || failed=1
exit $failed
