#!/usr/bin/env python3
"""Runs targets of the Makefile one after the other, as the stages of `make test`, and ends with a table of the time they took.

The first stage that fails is the last that runs; the table says which it was.
"""
import argparse
import resource
import subprocess
import sys
import time


def processor_time():
    """Seconds of processor time of all the processes that this one has waited for, and of those they waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(rows):
    lines = [f"{'stage':12} {'wall s':>8} {'cpu s':>8}"]
    lines += [f"{name:12} {wall:8.0f} {f'{cpu:.0f}' if cpu is not None else '':>8}{'' if passed else '  FAILED'}" for name, wall, cpu, passed in rows]
    lines.append(f"{'all':12} {sum(row[1] for row in rows):8.0f} {sum(row[2] or 0 for row in rows):8.0f}")
    return "\n".join(lines)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--since", type=float, help="when set-up started, in seconds of the epoch: it becomes the first row")
    options.add_argument("targets", nargs="+")
    args = options.parse_args()
    rows = [("setup", time.time() - args.since, None, True)] if args.since else []
    status = 0
    for target in args.targets:
        print(f"\n== {target}", flush=True)
        started, cpu = time.monotonic(), processor_time()
        status = subprocess.run(["make", "--no-print-directory", target]).returncode
        rows.append((target, time.monotonic() - started, processor_time() - cpu, status == 0))
        print(f"== {target}: {rows[-1][1]:.0f} s, {rows[-1][2]:.0f} s of processor time", flush=True)  # a run that is ended has no table
        if status:
            break
    left = args.targets[len([row for row in rows if row[2] is not None]) :]
    print(f"\n{table(rows)}")
    if status:
        print(f"{rows[-1][0]} failed" + (f"; not run: {', '.join(left)}" if left else ""))
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
