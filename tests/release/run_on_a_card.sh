#!/usr/bin/env bash
# All tests of winners that need a GPU: a whole run, its winner in use, the release checks and their times.
# Usage: run_on_a_card.sh OUTPUT_FOLDER
set -u
out=$1
run=$(mktemp -d)/run
python3 supervisor.py --task examples/gelu_bias_residual.py --device cuda --budget 3 --model recipes --run-dir "$run" 2>&1 | tail -15
cp "$run/best.py" "$run/result.json" "$run/report.html" "$out/"
head -12 "$run/best.py"
python3 tests/release/use_winner.py "$run/best.py" cuda
PYTHONPATH=.:$PYTHONPATH python3 tests/release/time_release_checks.py
python3 -m pytest -p no:cacheprovider -m gpu tests/release -q 2>&1 | tail -30
