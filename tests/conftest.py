import gc
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402
from xdist.scheduler import LoadScopeScheduling  # noqa: E402

import programs  # noqa: E402

# Each test of these runs over the same list of cases, by the parameter `name`: "llama-gqa" is of the family "llama".
OVER_CASES = re.compile(r"test_(models|compiled|adapters)\.py::\w+\[(\w+)")


def unit_of(nodeid):
    """The rows that one worker runs one after the other: those of a file, or of a family of cases. They share what is prepared for them."""
    family = OVER_CASES.search(nodeid)
    if family:
        return f"{'adapters' if family[1] == 'adapters' else 'models'} {family[2]}"
    return nodeid.partition("::")[0]


class Units(LoadScopeScheduling):
    def _split_scope(self, nodeid):
        return unit_of(nodeid)


def pytest_xdist_make_scheduler(config, log):
    config.option.loadscopereorder = False  # ours is below
    return Units(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """In units, the rows of one case together. Families come last: they are many and short, so that all workers end at the same time."""
    first = {}
    for position, item in enumerate(items):
        first.setdefault(unit_of(item.nodeid), position)

    def place(item):
        unit, case = unit_of(item.nodeid), ""
        is_family = bool(OVER_CASES.search(item.nodeid))
        if is_family:
            case = item.callspec.params["name"]
        return is_family, first[unit], case

    items.sort(key=place)
    # The first row of each test with several is the sample that starts real processes.
    seen = set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        item.starts_processes = "[" in item.nodeid and function not in seen
        seen.add(function)


def pytest_collection_finish():
    """What was imported stays: the collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    programs.real_row = item.starts_processes
    try:
        return (yield)
    finally:
        programs.real_row = False
