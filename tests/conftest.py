import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest  # noqa: E402

import programs  # noqa: E402


def function_of(item):
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """The first row of each test with several is the sample that starts real processes."""
    seen = set()
    for item in items:
        item.starts_processes = "[" in item.nodeid and function_of(item) not in seen
        seen.add(function_of(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    programs.real_row = item.starts_processes
    try:
        return (yield)
    finally:
        programs.real_row = False
