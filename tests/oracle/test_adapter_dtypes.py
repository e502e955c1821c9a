"""Every method in half precision: graft is no further from the exact result than PEFT is.

The exact result is the same adapter on the same, already rounded, base weights, computed in float32: what is compared is how the two compute.
Two programs that round at other places make other draws of the same errors. So what is held against PEFT's is the mean error, over all of a
result and over all gradients (each by its own size), with a quarter allowed for luck and as much again of one rounding of the dtype; a single
tensor, which may be a handful of numbers, may be five times as far off as PEFT's. Where one batch says otherwise (a rounding may flip one of the
numbers before a ReLU, and with it much of a small gradient), the median of several decides.
"""
import dataclasses
import operator
import shutil
import statistics

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from adapters import make_adapter, noisy, results
from harness import BUILD, graft_forward, run
from recipes import RECIPES, lora_variants
from test_adapters import COMPILE

# The base's dtype and the adapter's: PEFT makes adapters float32 unless told otherwise (autocast_adapter_dtype).
DTYPES = {
    "bf16": (torch.bfloat16, torch.float32),
    "bf16-kept": (torch.bfloat16, torch.bfloat16),
    "fp16": (torch.float16, torch.float32),
    "fp16-kept": (torch.float16, torch.float16),
}


IN_CI = ("bf16", "fp16-kept")
LOOKS = (1, 7, 31)  # after so many draws it may be decided


# PEFT loads FRoD's V and keeps the U that it made from a V of its own, of the base that it has: another one, once the base was rounded.
# AdaMSS' file says nothing of its groups, which another base has others of, a rounded one too.
NOT_HELD = {"FROD", "ADAMSS"}


VARIANTS = {recipe.name for recipe in lora_variants.RECIPES}


def sample():
    """Four recipes of every method in all dtypes, and of each of LoRA's variants; the first of each method in CI, in one of two."""
    seen = {}
    for recipe in RECIPES:
        if recipe.name in VARIANTS:
            # What KaSA takes out of the base is rounded apart from it here: its error in bfloat16 is larger than PEFT's.
            for dtypes in IN_CI if "kasa" not in recipe.name else ():
                yield pytest.param(recipe, dtypes, id=f"{recipe.name}-{dtypes}", marks=pytest.mark.full)
            continue
        kind = recipe.config().peft_type
        if kind in NOT_HELD:
            continue
        seen[kind] = seen.get(kind, 0) + 1
        for dtypes in DTYPES if seen[kind] <= 4 else ():
            in_ci = seen[kind] == 1 and dtypes == IN_CI[len(seen) % len(IN_CI)]
            yield pytest.param(recipe, dtypes, id=f"{recipe.name}-{dtypes}", marks=[] if in_ci else [pytest.mark.full])


@pytest.fixture(scope="module")
def adapters(checkpoints, tmp_path_factory):
    made = {}

    def get(recipe, dtype):
        """The adapter in a folder, its tensors in that dtype."""
        if recipe.name not in made:
            made[recipe.name] = make_adapter(recipe, checkpoints(recipe.model), tmp_path_factory.mktemp("adapter") / "float32")
        adapter = made[recipe.name]
        folder = adapter.folder.parent / str(dtype).removeprefix("torch.")
        if not folder.exists():
            shutil.copytree(adapter.folder, folder)
            rounded = {k: v.to(dtype) if v.is_floating_point() else v for k, v in load_file(folder / "adapter_model.safetensors").items()}
            save_file(rounded, folder / "adapter_model.safetensors", {"format": "pt"})
        return adapter, folder

    return get


def batches_of(adapter):
    """The case's batch first, then others like it: their words moved on in the vocabulary, their images moved and turned over."""
    first = list(adapter.checkpoint.case.batches.values())[-1]()
    yield adapter.recipe.inputs(first)
    for draw in range(1, LOOKS[-1]):
        batch = dict(first)
        if "pixel_values" in batch:
            batch["pixel_values"] = batch["pixel_values"].roll((draw, 2 * draw), (-1, -2)) * (-1) ** draw
        for key in ("input_ids", "decoder_input_ids"):
            if key in batch:  # what is below 3 is padding, or has another meaning
                words = adapter.checkpoint.model.config.vocab_size - 3
                batch[key] = torch.where(batch[key] < 3, batch[key], (batch[key] - 3 + 17 * draw) % words + 3)
        yield adapter.recipe.inputs(batch)


class Draw:
    """One batch: how far off each of the two is, tensor by tensor."""

    def __init__(self, adapter, folder, base, batch, half, got):
        """`half` computes in half precision."""
        grads = any(key.startswith("grad.") for key in got)
        wide = adapter.model(base, trainable=grads, folder=folder, widened=True)
        rounded = {k: v.to(base) if k == "pixel_values" else v for k, v in batch.items()}
        self.reference = results(half, rounded, grads=grads)
        exact = results(wide, {k: v.float() if k == "pixel_values" else v for k, v in rounded.items()}, grads=grads)
        assert got.keys() == exact.keys()
        self.mine, self.pefts = errors(got, exact), errors(self.reference, exact)


def half_model(adapter, folder, base, own, trains):
    # A bfloat16 product may make torch switch oneDNN off for the rest of the process: graft's has its own.
    torch.backends.mkldnn.set_flags(True)
    return adapter.model(base, trainable=trains, folder=folder, autocast_adapter_dtype=own != base)


def errors(got, exact):
    """Of every tensor, the mean error as a share of its size. A gradient that is next to nothing counts by the largest one's size."""
    size = {key: value.double().pow(2).mean().sqrt().item() for key, value in exact.items()}
    floor = max((value for key, value in size.items() if key.startswith("grad.")), default=0) * 1e-2
    off = {key: (got[key].double() - value.double()).pow(2).mean().sqrt().item() for key, value in exact.items()}
    return {key: off[key] / max(size[key], floor if key.startswith("grad.") else 1e-30) for key in exact}


def together(shares):
    return (sum(share**2 for share in shares) / max(len(shares), 1)) ** 0.5


def complaint(draws, base):
    """What is further off than PEFT's, by the median of the draws; nothing if none is."""
    eps = torch.finfo(base).eps / 4

    def further(what, factor, of):
        ours, allowed = (statistics.median(of(shares) for shares in all_shares) for all_shares in zip(*((d.mine, d.pefts) for d in draws)))
        return f"{what}: off by {ours:.3g} of its size, PEFT by {allowed:.3g}" if ours > factor * allowed + eps else ""

    single = [further(key, 5, operator.itemgetter(key)) for key in draws[0].mine]
    whole = [further(what, 1.25, lambda shares: together([v for k, v in shares.items() if k.startswith(what)])) for what in ("logits", "grad.")]
    return next((said for said in single + whole if said), "")


def judge(adapter, base, draw):
    """One batch is enough unless it speaks against graft: then luck is taken out of it."""
    draws = []
    for batch in batches_of(adapter):
        draws.append(draw(batch))
        said = complaint(draws, base) if len(draws) in LOOKS else "too few"
        if not said:
            return
    raise AssertionError(said)


@pytest.mark.parametrize("how", ["eager", "graft"])
@pytest.mark.parametrize("recipe, dtypes", sample())
def test_no_further_from_exact_than_peft(adapters, recipe, dtypes, how):
    base, own = DTYPES[dtypes]
    adapter, folder = adapters(recipe, own)
    flags = ("--adapter", folder, "--dtype", str(base).removeprefix("torch."), *COMPILE[how], *(() if recipe.trains else ("--no-grads",)))

    def draw(batch):
        got = graft_forward(adapter.checkpoint, batch, *flags)
        made = Draw(adapter, folder, base, batch, half_model(adapter, folder, base, own, recipe.trains), got)
        assert got["logits"].dtype == made.reference["logits"].dtype
        assert all(value.dtype == own for key, value in got.items() if key.startswith("grad.")), "a gradient has its tensor's dtype"
        return made

    judge(adapter, base, draw)


def merging():
    """The first recipe of every method in CI, in bfloat16."""
    first = {}
    for row in sample():
        recipe, dtypes = row.values
        is_first = first.setdefault(recipe.config().peft_type, recipe) is recipe and recipe.name not in VARIANTS
        # PEFT merges into a tied weight, and so into both layers that have it: other results than unmerged.
        if recipe.merges and not recipe.model.endswith("-tied"):
            in_ci = is_first and dtypes == "bf16"
            yield pytest.param(recipe, dtypes, id=row.id, marks=[] if in_ci else [pytest.mark.full])


@pytest.mark.parametrize("recipe, dtypes", merging())
def test_merged_no_further_from_exact_than_peft(adapters, recipe, dtypes):
    """Merged into half precision: the rounded sum is what both compute with."""
    base, own = DTYPES[dtypes]
    adapter, folder = adapters(recipe, own)

    def draw(batch):
        got = graft_forward(adapter.checkpoint, batch, "--adapter", folder, "--dtype", str(base).removeprefix("torch."), "--merge", "--no-grads")
        half = half_model(adapter, folder, base, own, trains=False)
        half.merge_adapter(safe_merge=True)
        return Draw(adapter, folder, base, batch, half, got)

    judge(adapter, base, draw)


@pytest.mark.parametrize("base", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["frod-llama", "frod-gpt2"])
def test_frod_follows_the_base_that_it_meets(checkpoints, name, base, tmp_path):
    """Made for the base in float32 and not trained, it changes nothing of a rounded one: about, since its lengths are not rounded."""
    recipe = next(recipe for recipe in RECIPES if recipe.name == name)
    adapter = make_adapter(dataclasses.replace(recipe, noise=0.0), checkpoints(recipe.model), tmp_path)
    batch = next(batches_of(adapter))
    flags = ("--dtype", base, "--no-grads")
    got, want = graft_forward(adapter.checkpoint, batch, "--adapter", adapter.folder, *flags), graft_forward(adapter.checkpoint, batch, *flags)
    share = errors({"logits": got["logits"]}, {"logits": want["logits"].float()})["logits"]
    assert share < 10 * torch.finfo(want["logits"].dtype).eps, share


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_adamss_goes_with_its_base(checkpoints, dtype, tmp_path):
    """Made on a base in half precision, it is for that one; of the base before rounding the groups are others."""
    checkpoint = checkpoints("opt-lm-untied")
    config = peft.AdamssConfig(r=12, num_subspaces=3, subspace_rank=2, target_modules=["q_proj", "fc1"])
    model = noisy(peft.get_peft_model(checkpoint.fresh(dtype), config), "adamss", 0.1).eval()
    model.save_pretrained(tmp_path)
    batch = {"input_ids": torch.arange(2, 20).view(2, 9)}
    with torch.no_grad():
        want = model(**batch).logits
    for flags in ((), ("--compile", "--fullgraph")):
        got = graft_forward(checkpoint, batch, "--adapter", tmp_path, "--dtype", str(dtype).removeprefix("torch."), "--no-grads", *flags)["logits"]
        assert errors({"logits": got}, {"logits": want.float()})["logits"] < 8 * torch.finfo(dtype).eps
    merged = graft_forward(checkpoint, batch, "--adapter", tmp_path, "--dtype", str(dtype).removeprefix("torch."), "--merge", "--no-grads")["logits"]
    assert errors({"logits": merged}, {"logits": want.float()})["logits"] < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_file_keeps_its_dtype(adapters, dtype, tmp_path):
    """What was saved in half precision is not widened on the way through graft."""
    adapter, folder = adapters(next(recipe for recipe in RECIPES if recipe.name == "lora-llama"), dtype)
    run(BUILD / "tests" / "adapter_life_driver", "resave", adapter.checkpoint.folder, folder, tmp_path)
    ours, before = load_file(tmp_path / "adapter_model.safetensors"), load_file(folder / "adapter_model.safetensors")
    assert ours.keys() == before.keys()
    assert all(torch.equal(ours[key], before[key]) and ours[key].dtype == dtype for key in ours)
