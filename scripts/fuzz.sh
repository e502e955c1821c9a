#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for SECONDS, as many at a time as there are cores. What they learn stays under
# build-fuzz/ and is where the next run starts.
#   scripts/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
export seconds=${1:-60} here=build-fuzz/tests/fuzz
targets=(safetensors_header gguf json ir tokenizer)
[ -f build-fuzz/build.ninja ] || cmake --preset fuzz >/dev/null
ninja -C build-fuzz --quiet "${targets[@]/#/fuzz_}"

fuzz() {
  local target=$1 log=$here/$1.log
  mkdir -p "$here/learned/$target"
  if ! "$here/fuzz_$target" -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 -dict="tests/fuzz/$target.dict" \
      -artifact_prefix="$here/" "$here/learned/$target" "$here/corpus/$target" >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "fuzz: $target found something; the input is in $here" >&2
    return 1
  fi
  echo "fuzz: $target, $(sed -n 's/stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, no finding"
}
export -f fuzz
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'fuzz {}'
