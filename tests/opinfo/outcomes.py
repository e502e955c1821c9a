"""What becomes of PyTorch's own samples: exported, run by opinfo_driver, counted."""
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import programs

DRIVER = programs.BUILD / "tests" / "opinfo_driver"
EXPORT = Path(__file__).with_name("export.py")
KINDS = ("passed", "external", "refused", "wrong", "crashed", "eager")
SOME = 400  # samples of the test that runs by default
# What docs/operators.md lists, and which outcomes an operator of each list may have.
LISTS = {"In generated kernels": {"passed", "refused"},
         "In generated kernels for some samples, with calls of ATen for others": {"passed", "external", "refused"},
         "Calls of ATen": {"external", "refused"}}
SHAPE_OF_DATA = "has a result whose shape depends on the data"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


class Outcomes:
    """The outcome of each case by its name, "add float32 3 function", and what could not be exported, by reason."""

    def __init__(self, of_case=None, skipped=None):
        self.of_case, self.skipped = of_case or {}, skipped or {}

    def update(self, other):
        self.of_case.update(other.of_case)
        self.skipped.update(other.skipped)

    def of_kind(self, *kinds):
        return {name: said for name, said in self.of_case.items() if said.partition(":")[0] in kinds}

    def of_operators(self):
        """Which kinds of outcomes each operator has."""
        kinds = {}
        for name, said in self.of_case.items():
            kinds.setdefault(name.rsplit(" ", 3)[0], set()).add(said.partition(":")[0])
        return {op: found - {"eager"} for op, found in kinds.items()}

    def lists(self):
        """The lists of docs/operators.md."""
        made = {title: [] for title in LISTS}
        for op, found in self.of_operators().items():
            external, passed = "external" in found, "passed" in found
            if external or passed:
                made[list(LISTS)[0 if not external else 1 if passed else 2]].append(op)
        return made

    def counts(self):
        """By dtype and in all: how many cases of each kind. Those that eager code refuses are none of the compiler's."""
        found = {}
        for name, said in self.of_case.items():
            for row in (name.split()[-3], "all"):
                found.setdefault(row, Counter())[said.partition(":")[0]] += 1
        return found

    def compiled_share(self, without_data=False):
        """Of all, or of those whose results have shapes that do not depend on data: no graph of known shapes holds the others."""
        counts = self.counts()["all"]
        all_of_them = sum(counts[kind] for kind in KINDS if kind != "eager")
        if without_data:
            all_of_them -= sum(SHAPE_OF_DATA in said for said in self.of_kind("refused").values())
        return (counts["passed"] + counts["external"]) / all_of_them

    def skipped_reasons(self):
        """(why, how many) of what is no case."""
        found = Counter()
        for name, number in self.skipped.items():
            kind, _, why = name.partition(": ")[2].partition(": ")
            found["the eager call throws (most often an in-place form whose result has another dtype)" if kind == "eager" else why] += number
        return found.most_common()

    def reasons(self):
        """Of what is refused: how many cases and which operators, the most frequent first."""
        found = {}
        for name, said in self.of_kind("refused").items():
            found.setdefault(reason_of(said), Counter())[name.rsplit(" ", 3)[0]] += 1
        return sorted(found.items(), key=lambda item: -sum(item[1].values()))

    def table(self):
        lines = ["| dtype | samples | passed | external | refused | wrong | crashed |", "|---" * 7 + "|"]
        for row, counts in sorted(self.counts().items(), key=lambda item: (item[0] == "all", item[0])):
            shown = [counts[kind] for kind in KINDS if kind != "eager"]
            lines.append(f"| {row} | " + " | ".join(f"{number:,}" for number in (sum(shown), *shown)) + " |")
        return "\n".join(lines)


def operators_listed(page):
    """By operator: the list of the page in which it stands."""
    found = {}
    for section in page.split("\n## ")[1:]:
        title = section.partition(" (")[0]
        if title in LISTS:
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", section), title)
    return found


def reason_of(said):
    """Without what differs from case to case."""
    reason = said.partition(": ")[2]
    return re.sub(r"^\[\w+\] |, near module.*", "", reason)


def run_part(folder, *options):
    """In a folder that is emptied: export, and run."""
    subprocess.run([sys.executable, EXPORT, folder, *options], check=True, stdout=subprocess.DEVNULL, env=ONE_THREAD)
    done = programs.run([DRIVER, folder], env=ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"opinfo_driver: {done.stderr[-2000:]}")
    of_case = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    skipped = json.loads((Path(folder) / "skipped.json").read_text())
    for name in ("cases.jsonl", "tensors.bin"):
        (Path(folder) / name).unlink()
    return Outcomes(of_case, skipped)


def run_all(folder, parts=32, workers=os.cpu_count(), seen=lambda part, outcomes: None):
    """All samples: hours of one processor. `seen` is told of each part that is done."""
    total = Outcomes()
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(run_part, Path(folder) / str(part), "--part", f"{part}/{parts}") for part in range(parts)]
        for part, job in enumerate(jobs):
            total.update(job.result())
            seen(part, total)
    return total


def run_some(count):
    """So many, spread over operators, dtypes and samples."""
    with tempfile.TemporaryDirectory() as folder:
        return run_part(folder, "--spread", str(count))
