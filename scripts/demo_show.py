#!/usr/bin/env python3
"""What the demo prints of what graft wrote, and the rows it trains on. `demo_show.py WHAT FILE...`"""
import csv
import json
import random
import sys
from pathlib import Path


def answers(eager, compiled):
    """The same answer twice, and what each way of getting it took."""
    runs = {"eager": json.loads(Path(eager).read_text()), "compiled": json.loads(Path(compiled).read_text())}
    print(f"  {'':10}{'first token':>12}{'per token':>12}{'compilation':>13}   answer")
    for name, run in runs.items():
        report = run["report"]
        print(f"  {name:10}{report['first_token_s']:10.2f} s{report['median_ms']:9.0f} ms{report['compile_s']:11.2f} s   {run['texts'][0].strip()}")
    if runs["eager"]["sequences"] != runs["compiled"]["sequences"]:
        sys.exit("demo: the two answers differ")


def curve(metrics):
    """The losses as a line of bars."""
    losses = [json.loads(line)["loss"] for line in Path(metrics).read_text().splitlines()]
    low, high = min(losses), max(losses)
    bars = "".join("▁▂▃▄▅▆▇█"[round(7 * (loss - low) / ((high - low) or 1))] for loss in losses)
    print(f"  loss {losses[0]:.2f} {bars} {losses[-1]:.2f}")


def mixed(path, *names):
    run = json.loads(Path(path).read_text())
    for name, text in zip(names, run["texts"]):
        print(f"  {name:12} {' '.join(text.split())}")
    print(f"\n  {run['report']['graphs']} graphs, {run['report']['recompiles']} recompilations")


def ids(sequences, output):
    from safetensors.torch import load_file, save_file
    save_file({"input_ids": load_file(sequences)["sequences"]}, output)


def difference(one, other):
    from safetensors.torch import load_file
    logits = [load_file(path)["logits"].float() for path in (one, other)]
    largest = (logits[0] - logits[1]).abs().max().item()
    print(f"  largest difference between {logits[0].numel():,} logits: {largest:.1e} (of up to {logits[0].abs().max().item():.0f})")
    if not largest < 1e-2:
        sys.exit("demo: the merged model is another one")


def reviews(source, train, held_out):
    """640 of the short reviews to train on, 200 others to judge by."""
    with open(source, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    random.Random(1).shuffle(rows)
    for path, part in ((train, rows[:640]), (held_out, rows[640:840])):
        lines = (json.dumps({"text": row["text"], "label": int(row["label"])}) + "\n" for row in part)
        Path(path).write_text("".join(lines))


if __name__ == "__main__":
    {"answers": answers, "curve": curve, "mixed": mixed, "ids": ids, "difference": difference, "reviews": reviews}[sys.argv[1]](*sys.argv[2:])
