#!/usr/bin/env bash
# Runs the unit tests of a build folder in as many processes as there are cores. (ctest can run them one by one; then torch is loaded
# for each of them.)
#   scripts/unit_tests.sh BUILD_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
export GTEST_TOTAL_SHARDS
GTEST_TOTAL_SHARDS=$(nproc)
pids=()
for ((shard = 0; shard < GTEST_TOTAL_SHARDS; ++shard)); do
  GTEST_SHARD_INDEX=$shard "$folder/tests/unit_tests" --gtest_brief=1 >"$folder/unit_tests.$shard.log" 2>&1 &
  pids+=($!)
done
failed=0
for ((shard = 0; shard < GTEST_TOTAL_SHARDS; ++shard)); do
  if wait "${pids[shard]}"; then
    grep -a '^\[  PASSED' "$folder/unit_tests.$shard.log"
  else
    failed=1
    tail -n 200 "$folder/unit_tests.$shard.log"
  fi
done
exit $failed
