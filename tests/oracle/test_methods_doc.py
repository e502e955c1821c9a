"""docs/methods.md says what graft does, and the script that says so notices when it does not."""
import re
import sys

import pytest

from harness import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import methods_doc  # noqa: E402


# Two minutes for all of them: `make test-full` has that.
IN_CI = ("lora", "ia3", "vblora", "tokens", "prefix", "poly")


@pytest.fixture(scope="module", params=[IN_CI, pytest.param(None, marks=pytest.mark.full)], ids=["some", "all"])
def facts(request):
    return methods_doc.graft_facts(request.param)


def is_current(page, facts):
    """graft's table says this of these methods; of all of them, with the reasons below it."""
    if set(facts) == set(methods_doc.NAMES):
        return methods_doc.replaced(page, "graft", facts) == page
    own = page.partition("<!-- graft -->")[2].partition("<!-- end of graft -->")[0].splitlines()
    return {line for line in methods_doc.table(facts, {}).splitlines() if line.startswith("|")} <= set(own)


def test_page_is_up_to_date(facts):
    assert set(facts) in (set(IN_CI), set(methods_doc.NAMES))
    assert is_current(methods_doc.PAGE.read_text(), facts), "run scripts/methods_doc.py --graft"


def test_every_method_is_there():
    page = methods_doc.PAGE.read_text()
    for part in methods_doc.PARTS:
        body = re.search(rf"<!-- {part} -->(.*?)<!-- end of {part} -->", page, re.DOTALL)[1]
        assert set(methods_doc.NAMES.values()) == set(re.findall(r"^\| ([^|]+?) \|", body, re.MULTILINE)) - {"method"}


def test_layer_methods_do_the_main_things(facts):
    """Trainable tokens, disabled or merged, once read an index that nobody had written."""
    prompts = {"prompt", "prefix", "p_tuning", "multitask", "cpt", "cartridge"}
    # BEFT is a bias, which the layers of this model have not; Lily's weights depend on the input.
    cannot = {"beft": {"merge", "unmerge"}, "lily": {"merge", "unmerge"}, "poly": {"merge", "unmerge"}, "adaption": {"merge", "unmerge"}}
    for method in facts.keys() - prompts:
        for feature in ("forward", "backward", "switch", "disable", "mixed rows", "hotswap", "merge", "unmerge", "save and load"):
            if feature not in cannot.get(method, ()):
                assert facts[method][feature] == "yes", (method, feature)


def test_a_stale_page_is_noticed(facts):
    stale = {**facts, "lora": {**facts["lora"], "merge": "no: a reason"}}
    assert not is_current(methods_doc.PAGE.read_text(), stale)
