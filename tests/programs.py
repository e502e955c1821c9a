"""How the tests run graft and the drivers: `run` is subprocess.run for them.

Most of a short command is loading libtorch. So each test process has a server (tests/rows/row_server.cpp) that has it loaded, and forks a
process for each command: the same code, in a process of its own, without the wait. `is_served` says which commands still start a real process;
GRAFT_REAL_PROCESSES=1 makes all of them do it.
"""
import os
import resource
import select
import socket
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("GRAFT_BUILD", ROOT / "build"))
GRAFT = Path(os.environ.get("GRAFT_BIN", BUILD / "graft"))
DEVICE = os.environ.get("GRAFT_TEST_DEVICE", "cpu")  # where graft and transformers run

SERVER = BUILD / "tests" / "row_server"
MODULES = BUILD / "tests" / "rows"  # the programs as shared libraries
SERVED = BUILD == ROOT / "build" and DEVICE == "cpu" and not os.environ.get("GRAFT_REAL_PROCESSES")
OWN_PROCESSES = {"launch", "bench"}  # commands that start the program again, by the name of its file
# What libraries read when they are loaded: the server's values would count, not those of the call.
READ_AT_LOAD = ("ASAN", "ATEN", "CUDA", "DNNL", "GLIBC", "GOMP", "KMP", "LD_", "LSAN", "MALLOC", "MKL", "OMP", "ONEDNN", "TORCH", "TSAN", "UBSAN")

real_row = False  # set by conftest.py: the row of a test that shall run with real processes
_server = None


def run(command, *, env=None, cwd=None, input=None, capture_output=False, text=False, encoding=None, timeout=None, check=False, memory=None, real=False):
    """subprocess.run. `memory` limits the address space, in bytes; `real` asks for a process that is started, not forked: where its own
    memory is measured, say."""
    command = [str(word) for word in command]
    environment = dict(os.environ if env is None else env)
    if real or not is_served(command, environment):
        limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None
        return subprocess.run(command, env=environment, cwd=cwd, input=input, capture_output=capture_output, text=text, encoding=encoding,
                              timeout=timeout, check=check, preexec_fn=limit)
    if input is not None and not isinstance(input, bytes):
        input = input.encode(encoding or "utf-8")
    status, *said = server().run(command, environment, str(cwd or os.getcwd()), input or b"", capture_output, timeout, memory or 0)
    if text or encoding:
        said = [part if part is None else part.decode(encoding or "utf-8").replace("\r\n", "\n").replace("\r", "\n") for part in said]
    done = subprocess.CompletedProcess(command, status, *said)
    if check:
        done.check_returncode()
    return done


def is_served(command, environment):
    """Whether a fork of the server is as good as a process of its own."""
    program = Path(command[0])
    return (SERVED and not real_row and program.parent in (BUILD, BUILD / "tests") and module_of(program).exists()
            and not OWN_PROCESSES.intersection(command[1:2]) and "cuda" not in command and read_at_load(environment) == server().environment)


def module_of(program):
    return MODULES / f"{program.name}.so"


def read_at_load(environment):
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_LOAD)}


def server():
    global _server
    if _server is None:
        _server = Server()
    return _server


class Server:
    """The server ends, and all that it runs, when this process does: it sees the end of the socket."""

    def __init__(self):
        self.environment = read_at_load(os.environ)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # Every symbol is looked up here, so that no child has to do it.
            self.process = subprocess.Popen([SERVER, str(theirs.fileno()), MODULES], pass_fds=[theirs.fileno()], env={**os.environ, "LD_BIND_NOW": "1"},
                                            stdin=subprocess.DEVNULL)

    def run(self, command, environment, folder, input, capture, timeout, memory):
        """(exit status as subprocess has it, output or None, errors or None)"""
        program = Path(command[0]).name
        strings = [program, folder, str(memory), str(len(command)), *command, *(f"{name}={value}" for name, value in environment.items())]
        with ExitStack() as stack:
            held = lambda descriptor: stack.callback(os.close, descriptor) and descriptor
            # Files in memory: nobody has to read while the program runs.
            standard = [held(os.memfd_create(name)) for name in ("stdin", "stdout", "stderr")]
            os.pwrite(standard[0], input, 0)
            reply, theirs = os.pipe()
            held(reply)
            try:
                given = standard if capture else [standard[0], 1, 2]
                message = b"".join(os.fsencode(each) + b"\0" for each in strings)
                socket.send_fds(self.socket, [message], [*given, theirs])
            finally:
                os.close(theirs)
            if not select.select([reply], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(command, timeout)  # the pipe is closed here, which kills the program
            status = os.read(reply, 4)
            if len(status) < 4:
                raise RuntimeError(f"the row server ended while it ran {command}; GRAFT_REAL_PROCESSES=1 does without it")
            said = [os.pread(each, os.fstat(each).st_size, 0) for each in standard[1:]] if capture else [None, None]
            return os.waitstatus_to_exitcode(struct.unpack("i", status)[0]), *said
