"""A process of the row server is to the tests what a process of its own is: arguments, surroundings, output, end."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import programs
from programs import BUILD, ROOT

PROBE = BUILD / "tests" / "probe"
pytestmark = pytest.mark.skipif(not programs.SERVED, reason="all rows run in real processes")


@pytest.fixture(autouse=True)
def served(monkeypatch):
    monkeypatch.setattr(programs, "real_row", False)


def both(*words, **how):
    """What the served process and the real one gave, which is the same."""
    forked, started = (programs.run([PROBE, *words], capture_output=True, real=real, **how) for real in (False, True))
    assert (forked.args, forked.returncode, forked.stdout, forked.stderr) == (started.args, started.returncode, started.stdout, started.stderr)
    return forked


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_it_is_a_fork_of_the_server():
    assert programs.is_served([str(PROBE)], dict(os.environ))
    before = children(os.getpid())
    both("show")
    assert programs.server().process.pid in before or programs.server().process.pid in children(os.getpid())


@pytest.mark.parametrize("how", [
    {},
    dict(input=b"one\ntwo"),
    dict(input="ä\r\nö\r\n", text=True),
    dict(input="ä\n", encoding="utf-8"),
    dict(cwd="/"),
    dict(env={**os.environ, "PROBE": "a=b\nc", "HOME": ""}),
    dict(memory=4 << 30),
], ids=lambda how: " ".join(how))
def test_surroundings(how):
    assert both("show", "", "two words", "*", **how).returncode == 0


def test_arguments_are_bytes():
    assert b"argument \xff\n" in both("show", os.fsdecode(b"\xff")).stdout


@pytest.mark.parametrize("how, status", [("0", 0), ("3", 3), ("255", 255), ("abort", -signal.SIGABRT), ("throw", -signal.SIGABRT), ("crash", -signal.SIGSEGV)])
def test_end(how, status):
    assert both(how, text=True).returncode == status


def test_memory_ends():
    assert both("exhaust", memory=6 << 30).returncode == 5


def test_a_failure_is_raised():
    with pytest.raises(subprocess.CalledProcessError):
        programs.run([PROBE, "3"], check=True, capture_output=True)


def test_time_is_up():
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run([PROBE, "sleep"], timeout=0.2, capture_output=True)
    while children(programs.server().process.pid):
        time.sleep(0.01)
    assert both("3").returncode == 3  # the server has nobody to reply to, and goes on


@pytest.mark.parametrize("name, value", [("OMP_NUM_THREADS", "3"), ("LD_LIBRARY_PATH", "/nowhere"), ("MKL_VERBOSE", "0"), ("TORCH_LOGS", "")])
def test_what_libraries_read_when_they_are_loaded_needs_a_real_process(name, value):
    assert not programs.is_served([str(PROBE)], {**os.environ, name: value})


@pytest.mark.parametrize("command", [["/bin/true"], [BUILD / "tests" / "unit_tests"], [BUILD / "graft", "launch", "-n", "2"], [BUILD / "graft", "bench"]], ids=str)
def test_other_programs_are_real_processes(command):
    assert not programs.is_served([str(word) for word in command], dict(os.environ))


def test_nothing_outlives_the_tests():
    """Neither the server nor what it runs, when the process of the tests is killed."""
    script = f"""if True:
        import sys, threading, time
        sys.path.insert(0, {str(ROOT / "tests")!r})
        import programs
        threading.Thread(target=programs.run, args=([{str(PROBE)!r}, "sleep"],), daemon=True).start()
        while not programs._server: time.sleep(0.01)
        print(programs.server().process.pid, flush=True)
        time.sleep(1000)
    """
    tests = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    server = next(int(line) for line in tests.stdout if line.strip().isdigit())
    while not (running := children(server)):
        time.sleep(0.01)
    tests.kill()
    tests.wait()
    while any(alive(pid) for pid in (server, *running)):
        time.sleep(0.01)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
