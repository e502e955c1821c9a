#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for SECONDS. What they learn stays under build-fuzz/ and is where the next run starts.
#   scripts/fuzz.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
here=build-fuzz/tests/fuzz
[ -f build-fuzz/build.ninja ] || cmake --preset fuzz >/dev/null
ninja -C build-fuzz --quiet fuzz_safetensors_header fuzz_gguf fuzz_json fuzz_ir fuzz_tokenizer
for target in safetensors_header gguf json ir tokenizer; do
  log=$here/$target.log
  mkdir -p $here/learned/$target
  if ! $here/fuzz_$target -max_total_time="$seconds" -max_len=1024 -print_final_stats=1 -dict=tests/fuzz/$target.dict \
      -artifact_prefix=$here/ $here/learned/$target $here/corpus/$target >"$log" 2>&1; then
    tail -n 40 "$log"
    echo "fuzz: $target found something; the input is in $here" >&2
    exit 1
  fi
  echo "fuzz: $target, $(sed -n 's/stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, no finding"
done
