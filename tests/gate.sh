#!/usr/bin/env bash
# What `make test` runs: three groups of tests beside each other (most tests wait, for a lease or for a
# process), then the tests that need the machine to themselves.  A test that fails beside others is run
# once more, alone: its limits are short, and others took the processors.
# Usage: tests/gate.sh PYTHON
set -u
python=$1
STARK_BUILD_STORE=$(mktemp -d) # one store of builds for all processes
export STARK_BUILD_STORE
trap 'rm -rf "$STARK_BUILD_STORE"' EXIT
left_out="gpu or live or long" # by name, or by `make test-long`

evaluator=(tests/agents tests/evaluator tests/fastbuild tests/release)
faults=(tests/faults tests/network)
rest=("${evaluator[@]/#/--ignore=}" "${faults[@]/#/--ignore=}")

group() { # NAME ARGUMENTS...: those of its tests that may run beside others
    local name=$1
    shift
    "$python" -m pytest -o "cache_dir=$STARK_BUILD_STORE/cache-$name" -m "not ($left_out or alone)" "$@"
}

finish() { # NAME PROCESS ARGUMENTS...: print what the group printed, and run its failures once more
    local name=$1 process=$2
    shift 2
    wait "$process"
    local status=$?
    cat "$STARK_BUILD_STORE/$name.txt"
    if [ $status = 1 ]; then
        group "$name" --last-failed --last-failed-no-failures none "$@"
        status=$?
    fi
    return $status
}

group evaluator "${evaluator[@]}" > "$STARK_BUILD_STORE/evaluator.txt" 2>&1 &
evaluator_process=$!
group faults "${faults[@]}" > "$STARK_BUILD_STORE/faults.txt" 2>&1 &
faults_process=$!
group rest "${rest[@]}" > "$STARK_BUILD_STORE/rest.txt" 2>&1 &
wait # no failure is repeated before all groups are done
failed=0
finish evaluator $evaluator_process "${evaluator[@]}" || failed=1
finish faults $faults_process "${faults[@]}" || failed=1
finish rest $! "${rest[@]}" || failed=1
"$python" -m pytest -m "alone and not ($left_out)" tests/evaluator tests/whole || failed=1
exit $failed
