#!/usr/bin/env bash
# What `make test` runs: parts of the tests, some beside each other (many tests wait, for a lease or
# for a process).  A test that fails is run once more when all parts are done: limits are short, whole
# runs depend on measured times, and other programs may have taken the processors.
# Usage: tests/gate.sh PYTHON
set -u
python=$1
STARK_BUILD_STORE=$(mktemp -d) # one store of builds for all processes
export STARK_BUILD_STORE
trap 'rm -rf "$STARK_BUILD_STORE"' EXIT
left_out="gpu or live or long" # by name, or by `make test-long`
at_once=$((2 * $(nproc)))
((at_once < 4)) && at_once=4

# Those that take longest begin first.  The evaluator's tests are three parts.
order=(whole evaluator judge states search fastbuild faults rest recipes supervisor network corpus)
judge_files=(tests/evaluator/test_evaluator_*.py)
states_files=(tests/evaluator/test_[o-z]*.py)
other_files=()
for file in tests/evaluator/test_*.py; do
    [[ " ${judge_files[*]} ${states_files[*]} " == *" $file "* ]] || other_files+=("$file")
done
declare -A folders=(
    [whole]="tests/whole"
    [judge]="${judge_files[*]}"
    [states]="${states_files[*]}"
    [evaluator]="${other_files[*]} tests/release"
    [faults]="tests/faults"
    [search]="tests/coordinator tests/watch"
    [corpus]="tests/test_corpus.py"
    [fastbuild]="tests/fastbuild tests/agents"
    [recipes]="tests/recipes"
    [network]="tests/network tests/launcher"
    [supervisor]="tests/supervisor"
)
named="${folders[*]}"
folders[rest]="tests ${named//tests\//--ignore=tests/}"

part() { # NAME ARGUMENTS...
    local name=$1
    shift
    # shellcheck disable=SC2086  # the folders are words
    "$python" -m pytest -o "cache_dir=$STARK_BUILD_STORE/cache-$name" \
        -m "not ($left_out)" "$@" ${folders[$name]}
}

for name in "${order[@]}"; do
    while (($(jobs -rp | wc -l) >= at_once)); do wait -n; done
    {
        part "$name" > "$STARK_BUILD_STORE/$name.txt" 2>&1
        echo $? > "$STARK_BUILD_STORE/$name.status"
    } &
done
wait
failed=0
for name in "${order[@]}"; do # no failure is repeated before all parts are done
    cat "$STARK_BUILD_STORE/$name.txt"
    status=$(cat "$STARK_BUILD_STORE/$name.status")
    if [ "$status" = 1 ]; then
        part "$name" --last-failed --last-failed-no-failures none || failed=1
    elif [ "$status" != 0 ]; then
        failed=1
    fi
done
exit $failed
