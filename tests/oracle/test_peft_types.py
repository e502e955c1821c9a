"""Every method that PEFT has is here, or is in a list that says why it is not: a new one is noticed."""
import json

import peft

from harness import GRAFT, run

MISSING = {
    "SHADOW": "puts a model of its own beside the base: whole blocks are wrapped, not layers",
}


def test_every_method_or_a_reason(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "NO_SUCH_METHOD"}))
    said = run(GRAFT, "init", "--model", tmp_path, "--adapter-config", tmp_path, "--output", tmp_path / "out", check=False).stderr
    ours = set(said.partition("known: ")[2].strip().split(", "))
    theirs = {each.value for each in peft.PeftType}
    assert ours, said
    assert ours | MISSING.keys() == theirs, "a method without a reason, or a reason for what there is not"
    assert not ours & MISSING.keys(), "these are here now: take them from the list"
