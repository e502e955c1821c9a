#!/usr/bin/env python3
"""All checks of the repository: one line each, then what failed in full. `--fast` leaves clang-tidy out, `--notes` shows notes."""
import re
import subprocess
import sys
import time
from pathlib import Path

from checklib import parser

CHECKS = ("format", "includes", "sizes", "docs", "tidy")  # cheap ones first
SLOW = ("tidy",)


def main():
    options = parser(__doc__)
    options.add_argument("--fast", action="store_true", help="only what takes about a second")
    options.add_argument("--notes", action="store_true", help="print the notes, too")
    args = options.parse_args()
    failures, notes = [], []
    for name in CHECKS:
        if args.fast and name in SLOW:
            continue
        started = time.monotonic()
        script = Path(__file__).resolve().parent / f"check_{name}.py"
        result = subprocess.run([sys.executable, str(script), "--root", str(args.root)], capture_output=True, text=True)
        output = result.stdout + result.stderr
        noted = [line for line in output.splitlines() if re.match(r"[^:]+:\d+: note: ", line)]  # clang's own have a column, too
        found = [line for line in output.splitlines() if line not in noted]
        verdict = "FAIL" if result.returncode else "ok"
        remark = f"  ({len(noted)} notes)" if noted else ""
        print(f"{verdict:4}  {name:9} {time.monotonic() - started:6.1f} s{remark}", flush=True)
        notes += noted
        failures += [(name, found)] if result.returncode else []
    if args.notes and notes:
        print("\nnotes:", *notes, sep="\n")
    for name, found in failures:
        print(f"\n{name}:", *found, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
