#!/usr/bin/env python3
"""Writes docs/methods.md: what each adapter method can do in graft, in PEFT, and in PEFT under torch.compile, found by doing it.

graft's table takes about half a minute, PEFT's two take some twenty. --graft rewrites graft's only; --check says whether it is up to date.
"""
import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("GRAFT_BUILD", ROOT / "build"))
PAGE = ROOT / "docs" / "methods.md"
NAMES = {
    "lora": "LoRA", "dora": "DoRA", "adalora": "AdaLoRA", "loha": "LoHa", "lokr": "LoKr", "ia3": "IA3", "ln_tuning": "LN tuning", "oft": "OFT",
    "boft": "BOFT", "hra": "HRA", "vera": "VeRA", "vblora": "VB-LoRA", "miss": "MiSS", "fourierft": "FourierFT", "randlora": "RandLoRA",
    "shira": "SHiRA", "road": "RoAd", "c3a": "C3A", "hira": "HiRA", "tokens": "trainable tokens", "prompt": "prompt tuning",
    "prefix": "prefix tuning", "p_tuning": "P-tuning", "delora": "DeLoRA", "beft": "BEFT", "gralora": "GraLoRA", "deft": "DEFT", "pvera": "PVeRA",
    "glora": "GLoRA", "waveft": "WaveFT", "supertuning": "Super-Tuning", "peanut": "PEANuT", "frod": "FRoD", "osf": "OSF", "unilora": "Uni-LoRA", "psoft": "PSOFT", "tinylora": "TinyLoRA", "lily": "Lily",
    "adamss": "AdaMSS", "poly": "POLY", "adaption": "adaption prompts", "multitask": "multitask prompt tuning", "cpt": "CPT", "cartridge": "cartridges",
}
INTRODUCTION = """# What each method can do

`.venv/bin/python scripts/methods_doc.py` writes this page: it makes two adapters of each method on a small Llama, does each thing with them
and compares the results with what they must be. `tests/oracle/test_methods_doc.py` fails when graft's table is not what graft does.

*switch*: another adapter is set active. *mixed rows*: each row of a batch has its own adapter or none. *several at once*: two are active
together. *hotswap*: new weights in an adapter's place. *weighted*: a new adapter is made of two, and runs (what it should be, each side says
itself). "yes" is the right result; where something is compiled, from the program of the first call, with nothing compiled again. "recompiles":
the right result, after compiling once more. "wrong": another result, without an error. "no": an error; the reasons are below the table.
"""
PARTS = {
    "graft": "## graft, compiled\n\nAlso eager: each compiled result is compared with it.",
    "peft": "## PEFT",
    "compiled": "## PEFT under torch.compile\n\n\"graph break\": the right result, in several pieces or not compiled at all. Backend eager: it is "
    "Dynamo's part that is tried; Inductor runs in\n`graft bench --suite adapters --against python`. What PEFT itself cannot do has its reason above.",
}


def rows(folder):
    path = Path(folder) / "rows.json"
    subprocess.run([BUILD / "graft", "bench", "--suite", "adapters", "--tiny", "--list", "--json", path], check=True, stdout=subprocess.DEVNULL)
    return path


def graft_facts(methods=None):
    """Of all methods, or of these."""
    with tempfile.TemporaryDirectory() as folder:
        path = rows(folder)
        if methods:
            asked = [row for row in json.loads(path.read_text()) if row["name"].rpartition("-")[0] in methods]
            path.write_text(json.dumps(asked))
        done = subprocess.run([BUILD / "tests" / "method_features_driver", path, Path(folder) / "scratch"],
                              check=True, stdout=subprocess.PIPE, text=True)
    facts = json.loads(done.stdout)
    for features in facts.values():
        features["quantised base"] = "not yet"
    return facts


def peft_facts():
    import methods_peft

    with tempfile.TemporaryDirectory() as folder:
        return methods_peft.found(json.loads(rows(folder).read_text()))


def reason_text(reason):
    """Without what differs from machine to machine, or from one adapter to the next."""
    reason = re.sub(r'\[\w+\] |"(first|second)" (and "second" )?|is [A-Z0-9_]+[;,] (which )?| but [A-Z0-9_]+ was passed', "", reason)
    return reason if len(reason) <= 150 else reason[:150].rsplit(" ", 1)[0] + " ..."


def table(facts, above):
    """The reasons that `above` has already are not said again."""
    features = list(next(iter(facts.values())))
    lines = ["| method | " + " | ".join(features) + " |", "|---" * (len(features) + 1) + "|"]
    reasons = {}
    for method, found in facts.items():
        cells = []
        for feature in features:
            word, _, reason = found[feature].partition(": ")
            cells.append(word)
            if reason and found[feature] != above.get(method, {}).get(feature):
                reasons.setdefault((feature, reason_text(reason)), []).append(NAMES[method])
        lines.append(f"| {NAMES[method]} | " + " | ".join(cells) + " |")
    lines += [""] + [f"- {feature}: {', '.join(methods)}: {reason}" for (feature, reason), methods in sorted(reasons.items())]
    return "\n".join(lines).rstrip()


def section(part, facts, above=None):
    return f"<!-- {part} -->\n{PARTS[part]}\n\n{table(facts, above or {})}\n<!-- end of {part} -->"


def replaced(page, part, facts):
    pattern = rf"<!-- {part} -->.*?<!-- end of {part} -->"
    if len(re.findall(pattern, page, re.DOTALL)) != 1:
        raise SystemExit(f"{PAGE.name} has no part {part!r}: write all of it, without --graft")
    return re.sub(pattern, lambda _: section(part, facts), page, flags=re.DOTALL)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = options.add_mutually_exclusive_group()
    which.add_argument("--graft", action="store_true", help="rewrite graft's table only")
    which.add_argument("--check", action="store_true", help="write nothing; status 1 if graft's table is out of date")
    args = options.parse_args()
    facts = graft_facts()
    if args.graft or args.check:
        page = PAGE.read_text()
        fresh = replaced(page, "graft", facts)
        if args.graft:
            PAGE.write_text(fresh)
        elif fresh != page:
            print(f"docs/{PAGE.name} is out of date: run scripts/methods_doc.py --graft", file=sys.stderr)
            return 1
        return 0
    eager, compiled = peft_facts()
    versions = ", ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in ("peft", "transformers", "torch"))
    parts = [section("graft", facts), section("peft", eager), section("compiled", compiled, above=eager)]
    PAGE.write_text("\n\n".join([INTRODUCTION.rstrip(), f"The Python side is {versions}.", *parts]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
