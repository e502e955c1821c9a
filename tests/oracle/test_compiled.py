"""Every model Case compiled as one graph: the same forward results and gradients as transformers, for each backend."""
import json

import pytest
import torch

from cases import CASES
from harness import assert_close, graft_forward


def ways():
    """The captured graph over ATen says little where the compiled one agrees: of every eighth case here, of all in `make test-full`."""
    for place, case in enumerate(CASES):
        for backend, each in (("aot_eager", 8), ("graft", 1)):
            in_ci = not case.full and place % each == 0
            yield pytest.param(case.name, backend, marks=[] if in_ci else [pytest.mark.full])


@pytest.mark.parametrize("name, backend", ways())
def test_one_graph(checkpoints, tmp_path, name, backend):
    checkpoint = checkpoints(name)
    # The last batch has padding, labels and whatever else the case has to offer; the first is plain and without labels for inference.
    for number, make in enumerate(checkpoint.case.batches.values()):
        batch = make()
        report = tmp_path / f"{number}.json"
        if number == 0:
            batch.pop("labels", None)
        expected = checkpoint.expected(batch)
        # --repeat: the second call is the second check, the third runs trusted code.
        flags = ["--compile", "--fullgraph", "--backend", backend, "--repeat", 1, "--report", report, "--no-cache"]
        assert_close(graft_forward(checkpoint, batch, *flags), expected, checkpoint.case.tolerance, lambda: checkpoint.expected(batch, torch.float64))
        values = json.loads(report.read_text())
        assert (values["graphs"], values["graph_breaks"], values["recompiles"]) == (1, 0, 0), values
