"""Every method that PEFT has is here, or is in a list that says why it is not: a new one is noticed."""
import json

import peft
import pytest

from harness import GRAFT, ROOT, run

MISSING = {
    "SHADOW": "puts a model of its own beside the base: whole blocks are wrapped, not layers",
}


def said_of(peft_type, folder):
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": peft_type}))
    done = run(GRAFT, "init", "--model", folder, "--adapter-config", folder, "--output", folder / "out", check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize("peft_type", MISSING)
def test_what_to_do_instead_is_said(tmp_path, peft_type):
    said = said_of(peft_type, tmp_path)
    assert f'"{peft_type}" is not supported: it ' in said and "Use PEFT for it, or" in said
    assert f"| {peft_type} |" in (ROOT / "docs/adapters.md").read_text(), "docs/adapters.md has no reason"


def test_every_method_or_a_reason(tmp_path):
    said = said_of("NO_SUCH_METHOD", tmp_path)
    ours = set(said.partition("known: ")[2].strip().split(", "))
    theirs = {each.value for each in peft.PeftType}
    assert ours, said
    assert ours | MISSING.keys() == theirs, "a method without a reason, or a reason for what there is not"
    assert not ours & MISSING.keys(), "these are here now: take them from the list"
