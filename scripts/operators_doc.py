#!/usr/bin/env python3
"""Writes docs/operators.md: what becomes of PyTorch's operators in a compiled function, found by running PyTorch's own samples (tests/opinfo).

    operators_doc.py [--samples N | --all]

N samples spread over all operators (default 6000: about twenty minutes on two cores), or all of them (hours). Needs build/tests/opinfo_driver.
"""
import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operators.md"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "opinfo")]
from outcomes import SOME, run_all, run_some  # noqa: E402

INTRODUCTION = """# PyTorch's operators, compiled

`.venv/bin/python scripts/operators_doc.py` writes this page. PyTorch's own samples of its operators (`torch.testing._internal`, OpInfo) run
eagerly and through `graft::compile`, with gradients where there are any: values, gradients, layouts, aliases and errors must be eager's, in calls that
are compared and in one that is not.

| outcome | what it means |
|---|---|
| passed | one graph, all of it in generated kernels and views |
| external | one graph, which calls ATen for some of it: products, convolutions, attention, sorting, linear algebra, FFT, and what is listed below |
| refused | no single graph holds it, for the reason below: it runs in parts, or eagerly. Right all the same |
| wrong, crashed | must be none |

Complex numbers are calls: what a kernel holds is one number each, and ATen's products and quotients of complex numbers have rules of their own for
infinities. Divisions of whole numbers by data are calls, too (a zero among them is an error); by a number that the graph knows they are kernels.
Running sums are kernels on the CPU; on a GPU they are ATen's, which have many threads for a line.
"""


def heading(title, operators):
    return f"## {title} ({len(operators)} operators)\n"


def names(operators):
    return textwrap.fill(", ".join(f"`{each}`" for each in sorted(operators)), 160, break_long_words=False, break_on_hyphens=False)


def page(outcomes, how):
    passed, both, external = outcomes.lists().items()
    counts = outcomes.counts()["all"]
    tried = sum(counts.values()) - counts["eager"]
    parts = [INTRODUCTION, f"{how}: {outcomes.compiled_share():.1%} of {tried:,} are one graph; of those whose shapes do not depend on data "
             f"{outcomes.compiled_share(without_data=True):.1%}.\n", outcomes.table(), "",
             heading(*passed), names(passed[1]), "", heading(*both),
             "Empty tensors, complex numbers, sparse ones, special layouts; gradients that are calls.\n", names(both[1]), "",
             heading(*external), names(external[1]), "", "## Refused\n", "| reason | samples | operators |\n|---|---|---|"]
    for reason, operators in outcomes.reasons():
        shown = ", ".join(f"`{op}`" for op, _ in operators.most_common(8)) + (", ..." if len(operators) > 8 else "")
        parts.append(f"| {re.sub(r' at [^ ]*[+:][0-9a-fx]+.*', '', reason).replace('|', ' ')} | {sum(operators.values())} | {shown} |")
    for kind in ("wrong", "crashed"):
        found = outcomes.of_kind(kind)
        parts.append(f"\n## {kind.capitalize()}: {len(found)}")
        parts += [f"- `{name}`: {said.partition(': ')[2][:150]}" for name, said in sorted(found.items())]
    return "\n".join(parts) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--samples", type=int, default=6000)
    options.add_argument("--all", action="store_true")
    args = options.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    today = datetime.date.today().isoformat()
    if args.all:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = run_all(folder, seen=lambda part, _: print(f"part {part} is done", flush=True))
    else:
        outcomes = run_some(args.samples)
        outcomes.update(run_some(SOME))
    how = f"{today}, commit {commit}, {os.uname().machine}, {'all samples' if args.all else f'{args.samples:,} samples spread over all operators'}"
    PAGE.write_text(page(outcomes, how))
    print(outcomes.table())


if __name__ == "__main__":
    main()
