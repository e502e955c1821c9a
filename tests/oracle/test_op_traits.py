"""src/ir/op_traits.cpp says about operators what torch's own tags and schemas say."""
import re
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).resolve().parents[2] / "src/ir/op_traits.cpp"
BLOCKS = {kind: names.split() for kind, names in re.findall(r'\{OpKind::(\w+), R"\(\n(.*?)\n\)"\}', SOURCE.read_text(), re.DOTALL)}
KIND = {name: kind for kind, names in BLOCKS.items() for name in names}

# Two overloads that differ: only the reducing one reaches a graph, the other becomes maximum or minimum.
MIXED = {"max", "min"}


def functional_ops():
    """(name, overload) of every ATen operator that takes and gives tensors and writes to none."""
    for qualified in torch._C._dispatch_get_all_op_names():
        name, _, overload = qualified.removeprefix("aten::").partition(".")
        packet = getattr(torch.ops.aten, name, None) if qualified.startswith("aten::") else None
        op = getattr(packet, overload or "default", None) if packet else None
        if op and not op._schema.is_mutable and any("Tensor" in str(r.type) for r in op._schema.returns) and not name.startswith("_test"):
            yield name, op


OPS = list(functional_ops())


def wrong(expected, allowed):
    names = {name for name, op in OPS if expected(op)}
    assert len(names) > 20, "torch no longer says this about its operators"
    return {name: KIND.get(name, "other") for name in sorted(names) if KIND.get(name, "other") not in allowed}


def is_view(op):
    return any(result.alias_info is not None for result in op._schema.returns)


def test_no_name_stands_twice_and_all_are_sorted():
    assert sum(map(len, BLOCKS.values())) == len(KIND) > 350
    for names in BLOCKS.values():
        assert names == sorted(names)


def test_every_name_is_a_functional_operator_of_torch():
    assert set(KIND) <= {name for name, _ in OPS}


def test_pointwise():
    found = wrong(lambda op: torch.Tag.pointwise in op.tags and not is_view(op) and torch.Tag.nondeterministic_seeded not in op.tags, {"pointwise"})
    assert set(found) == MIXED


def test_views():
    assert wrong(is_view, {"view"}) == {}


def test_random():
    """Attention draws numbers only where it has a dropout, and ir::must_run looks at that."""
    found = wrong(lambda op: torch.Tag.nondeterministic_seeded in op.tags, {"random"})
    assert set(found.values()) == {"attention"}


def test_reductions():
    assert wrong(lambda op: torch.Tag.reduction in op.tags, {"reduction"}) == {}


@pytest.mark.parametrize("kind", ["pointwise", "reduction", "creation", "matmul", "convolution", "gather", "scatter"])
def test_nothing_else_draws_numbers(kind):
    random = {name for name, op in OPS if torch.Tag.nondeterministic_seeded in op.tags}
    assert not random & set(BLOCKS[kind])
    assert not {name for name in BLOCKS[kind] for argument in getattr(torch.ops.aten, name).overloads()
                if any(a.name == "generator" for a in getattr(getattr(torch.ops.aten, name), argument)._schema.arguments)}


def test_every_core_operator_is_known_or_deliberately_other():
    """A new core operator of a new torch shows up here."""
    core = {name for name, op in OPS if torch.Tag.core in op.tags}
    deliberate = re.compile(r"(.*pool.*|_cdist_forward|_pdist_forward|_embedding_bag|_fft_\w+|cumsum|grid_sampler_2d|nonzero|sort|topk|upsample_bilinear2d)$")
    assert {name for name in core - set(KIND) if not deliberate.match(name)} == set()
