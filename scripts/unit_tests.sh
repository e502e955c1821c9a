#!/usr/bin/env bash
# Runs unit tests in as many processes at a time as there are cores. Each takes the next of several shards: with one shard a core, all
# would wait for the slowest. (ctest can run them one by one; then torch is loaded for each of them.)
#   scripts/unit_tests.sh PROGRAM
set -euo pipefail
cd "$(dirname "$0")/.."
export program=$1
export GTEST_TOTAL_SHARDS=$((4 * $(nproc)))
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # threads that spin take the core from the other process

run_shard() {
  local output=$program.$1
  if GTEST_SHARD_INDEX=$1 GTEST_OUTPUT="xml:$output.xml" "$program" --gtest_brief=1 >"$output.log" 2>&1; then
    sed -n "s/^\[  PASSED  \]/shard $1:/p" "$output.log"
  else
    tail -n 200 "$output.log"
    exit 1
  fi
}
export -f run_shard
seq 0 $((GTEST_TOTAL_SHARDS - 1)) | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'run_shard {}'
