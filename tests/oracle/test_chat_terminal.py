"""`graft chat` as a person has it, through a pseudo-terminal: Ctrl-C, slashes, what a turn reads, and a conversation that outgrows the model."""
import json
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import time

import pytest
import tokenizers

import programs
from harness import GRAFT
from test_chat import NEW, Reference, chat, chatty  # noqa: F401 (a fixture)
from test_chat_template import FETCHED

pytestmark = pytest.mark.skipif(not FETCHED, reason="minja is not there: `make setup` fetches it")
PROMPT = "> "


class Terminal:
    """A program with a terminal of its own, which ends with the test."""

    def __init__(self, *command):
        self.process, self.end = pty.fork()
        if self.process == 0:
            os.execv(command[0], [str(word) for word in command])
        self.unread = ""

    def read_until(self, mark, seconds=60):
        """All that is printed up to `mark` and with it."""
        until = time.monotonic() + seconds
        while mark not in self.unread:
            if not select.select([self.end], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError(f"no {mark!r} in {self.unread!r}")
            try:
                self.unread += os.read(self.end, 4096).decode(errors="replace").replace("\r\n", "\n")
            except OSError:
                raise AssertionError(f"it ended after {self.unread!r}")
        said, _, self.unread = self.unread.partition(mark)
        return said + mark

    def say(self, line):
        os.write(self.end, (line + "\n").encode())

    def status(self, seconds=60):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            done, status = os.waitpid(self.process, os.WNOHANG)
            if done:
                self.process = 0
                return os.waitstatus_to_exitcode(status)
            if select.select([self.end], [], [], 0.05)[0]:
                try:
                    os.read(self.end, 4096)
                except OSError:
                    pass
        raise AssertionError("it does not end")

    def close(self):
        os.close(self.end)
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)


@pytest.fixture
def terminal():
    opened = []

    def open_one(*command):
        opened.append(Terminal(*map(str, command)))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_interrupts_stop_the_answer_and_not_the_program(chatty, terminal):  # noqa: F811
    folder, _ = chatty
    talk = terminal(GRAFT, "chat", folder / "model", "--max-new-tokens", 400, "--ignore-eos")
    assert "/help lists the commands" in talk.read_until(PROMPT)
    for _ in range(2):  # once is no accident
        talk.say("Hello there")
        talk.read_until("\n")  # the terminal's echo
        time.sleep(0.05)
        os.write(talk.end, b"\x03")
        said = talk.read_until(PROMPT)
        assert "(stopped)" in said, said
    os.write(talk.end, b"half a line\x03")
    assert "ends the program" in talk.read_until("program\n")
    talk.read_until(PROMPT)
    talk.say("/help")
    said = talk.read_until(PROMPT)
    for word in ("/adapter", "/reset", "/quit", "//", "Ctrl-C"):
        assert word in said
    talk.say("/nothing")
    assert "there is no command /nothing" in talk.read_until(PROMPT)
    os.write(talk.end, b"\x04")  # Ctrl-D
    assert talk.status() == 0


def test_what_a_model_says_does_not_command_the_terminal(chatty, terminal, tmp_path):  # noqa: F811
    folder = tmp_path / "model"
    shutil.copytree(chatty[0] / "model", folder)
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    for other in folder.glob("*token*"):
        other.unlink()
    words = {f"\x1b]0;{i}\x07\x9b2J\r": i for i in range(size)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=next(iter(words))))
    tokenizer.save(str(folder / "tokenizer.json"))
    command = (GRAFT, "generate", "--model", folder, "--prompt", "x", "--max-new-tokens", "8", "--ignore-eos")
    talk = terminal("/bin/sh", "-c", shlex.join(map(str, command)) + " 2>/dev/null")  # without the progress
    shown = talk.read_until("\n")
    assert not {"\x1b", "\x07", "\x9b", "\r"} & set(shown), repr(shown)
    plain = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert "\x1b]0;" in plain and "\u241b]0;" in shown and "\u2407" in shown and "\u240d" in shown


def test_quit(chatty, terminal):  # noqa: F811
    talk = terminal(GRAFT, "chat", chatty[0] / "model")
    talk.read_until(PROMPT)
    talk.say("/quit")
    assert talk.status() == 0


def told(folder, lines, tmp_path, *flags):
    """The turns that were answered, and what each cost."""
    done = chat(folder, lines, *flags, "--json", "--report", tmp_path / "report.json")
    return [json.loads(line) for line in done.stdout.splitlines()], json.loads((tmp_path / "report.json").read_text())["turns"], done.stderr


def test_a_slash_may_begin_a_message(chatty, tmp_path):  # noqa: F811
    folder, tokenizer = chatty
    got, _, _ = told(folder, ["//usr/bin", "///"], tmp_path)
    reference, messages = Reference(folder, tokenizer), []
    for line, turn in zip(["/usr/bin", "//"], got, strict=True):
        messages.append({"role": "user", "content": line})
        messages.append({"role": "assistant", "content": reference.answer(messages, "none")})
        assert turn["content"] == messages[-1]["content"]


@pytest.mark.parametrize("how", [(), ("--compile",)], ids=["eager", "compiled"])
def test_a_turn_reads_what_is_new(chatty, tmp_path, how):  # noqa: F811
    """After the first a turn reads its own tokens, and each adapter has what it had read: a switch reads what the other one said and heard."""
    folder, tokenizer = chatty
    adapters = ("--adapter", f"de={folder / 'de'}", "--adapter", f"fr={folder / 'fr'}")
    lines = ["Hello there", "and now?", "more", "/adapter fr", "you too", "again", "/adapter de", "back", "/adapter none", "bare", "/adapter none", "still"]
    got, turns, _ = told(folder, lines, tmp_path, *adapters, *how)
    reference, messages, adapter, answered = Reference(folder, tokenizer), [], "de", iter(got)
    for line in lines:
        if line.startswith("/adapter"):
            adapter = line.split()[1]
            continue
        messages.append({"role": "user", "content": line})
        messages.append({"role": "assistant", "content": reference.answer(messages, adapter)})
        assert next(answered) == {**messages[-1], "adapter": adapter}
    assert [turn["adapter"] for turn in turns] == ["de", "de", "de", "fr", "fr", "de", "none", "none"]
    whole = [turn["conversation_tokens"] for turn in turns]
    read = [turn["read_tokens"] for turn in turns]
    for new in (0, 3, 6):  # an adapter's first turn reads all of it
        assert read[new] == whole[new]
    # An answer's last token, its end and the message; an answer whose text is spelled otherwise is read from there on.
    for turn in (1, 2, 4, 7):
        assert read[turn] <= whole[turn] - whole[turn - 1] < whole[turn], (read, whole)
    assert read[5] <= whole[5] - whole[2] < whole[5]  # back to "de": what "fr" was told is new to it


def test_a_full_context(chatty, tmp_path):  # noqa: F811
    """The oldest turns leave, as many as are needed for a quarter of the room, and a line says so; what is left is answered as transformers does."""
    folder, tokenizer = chatty
    lines = [f"message number {number}, and some words more to fill the room" for number in range(12)]
    got, turns, errors = told(folder, lines, tmp_path, "--system", "Be odd.")
    reference, system, pairs = Reference(folder, tokenizer), {"role": "system", "content": "Be odd."}, []
    for line, answer, turn in zip(lines, got, turns, strict=True):
        pairs = pairs[turn["turns_forgotten"] :]
        messages = [system, *(message for pair in pairs for message in pair), {"role": "user", "content": line}]
        said = {"role": "assistant", "content": reference.answer(messages, "none")}
        assert answer == said
        assert turn["conversation_tokens"] + NEW <= 512
        pairs.append((messages[-1], said))
    forgotten = [turn["turns_forgotten"] for turn in turns if turn["turns_forgotten"]]
    assert forgotten, "the conversation never outgrew the model"
    notes = [line for line in errors.splitlines() if "left it" in line]
    assert len(notes) == len(forgotten)
    for count, note in zip(forgotten, notes):
        assert f"the oldest {count} turn{'s have' if count > 1 else ' has'} left it" in note


def test_a_message_that_does_not_fit(chatty, terminal):  # noqa: F811
    """Nothing is lost by it."""
    folder, _ = chatty
    talk = terminal(GRAFT, "chat", folder / "model", "--max-new-tokens", 4)
    talk.read_until(PROMPT)
    os.write(talk.end, b"word " * 600)  # a terminal's line has at most 4095 bytes
    talk.say("")
    assert "make it shorter" in talk.read_until("shorter")
    talk.read_until(PROMPT)
    talk.say("short")
    talk.read_until(PROMPT)


def test_beams_are_refused(chatty):  # noqa: F811
    done = programs.run([GRAFT, "chat", chatty[0] / "model", "--num-beams", "3"], input="hi\n", capture_output=True, text=True)
    assert done.returncode == 2 and "num_beams" in done.stderr
