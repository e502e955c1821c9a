#!/usr/bin/env python3
"""Where the build time went: the slowest objects of a ninja build, from its .ninja_log."""
import argparse
import sys
from pathlib import Path


def read_log(path):
    """Entries (start ms, end ms, output, command hash) in file order. Columns: start, end, mtime, output, hash; tabs between."""
    entries = []
    for line in path.read_text().splitlines():
        fields = line.split("\t")
        if not line.startswith("#") and len(fields) == 5:
            entries.append((int(fields[0]), int(fields[1]), fields[3], fields[4]))
    return entries


def split_builds(entries):
    """Entries by ninja run: each run counts from 0 and logs in the order of finishing, so an end that goes back starts a new run."""
    builds = []
    for entry in entries:
        if not builds or entry[1] < builds[-1][-1][1]:
            builds.append([])
        builds[-1].append(entry)
    return builds


def last_of_each(builds):
    """{output: seconds}, of repeated outputs the last. A command with several outputs counts once, under its first."""
    seconds = {}
    for build in builds:
        commands = set()
        for start, end, output, command in build:
            seconds.pop(output, None)
            if (start, end, command) not in commands:
                seconds[output] = (end - start) / 1000
            commands.add((start, end, command))
    return seconds


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--dir", type=Path, default=Path("build"), help="the build folder")
    options.add_argument("--top", type=int, default=15, help="how many rows")
    args = options.parse_args()
    log = args.dir / ".ninja_log"
    if not log.exists():
        print(f"{log}:1: there is no build log; build first, with the Ninja generator")
        return 1

    builds = split_builds(read_log(log))
    seconds = {output: took for output, took in last_of_each(builds).items() if (args.dir / output).exists()}  # no former targets
    slowest = sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[: args.top]
    print(f"{'seconds':>8}  target")
    for output, took in slowest:
        print(f"{took:8.1f}  {output}")
    span = max((e[1] for e in builds[-1]), default=0) - min((e[0] for e in builds[-1]), default=0) if builds else 0
    print(f"{sum(seconds.values()):8.1f}  all {len(seconds)} steps together")
    print(f"{span / 1000:8.1f}  from start to end of the last build ({len(builds[-1]) if builds else 0} outputs)")
    if len(builds) > 1:
        print(f"note: the log holds about {len(builds)} builds; each shows only what it rebuilt, and the table the last time of each step")
    return 0


if __name__ == "__main__":
    sys.exit(main())
