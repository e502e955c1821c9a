"""Adapters that were made after resize_token_embeddings(): PEFT loads them on a base that was resized, too, graft on the base as it was."""
import peft
import pytest
import torch
from safetensors.torch import load_file

from adapters import noisy, results
from harness import BUILD, DEVICE, GRAFT, assert_close, graft_forward, run, text_batch
from test_adapters import COMPILE
from test_generate import HOW, ours, same, theirs

KINDS = {
    "trained": ("llama-gqa", dict(modules_to_save=["embed_tokens", "lm_head"])),
    "beside": ("llama-gqa", {}),
    "tied": ("llama-tied", {}),
    "trained-tied": ("llama-tied", dict(modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "opt": ("opt-lm-untied", dict(modules_to_save=["embed_tokens", "lm_head"])),
}
MORE = 137


def resized(checkpoint, dtype=torch.float32):
    torch.manual_seed(3)
    base = checkpoint.fresh(dtype)
    base.resize_token_embeddings(MORE, mean_resizing=False)
    return base


@pytest.fixture(scope="module")
def saved(checkpoints, tmp_path_factory):
    made = {}

    def get(name):
        if name not in made:
            case, fields = KINDS[name]
            checkpoint, folder = checkpoints(case), tmp_path_factory.mktemp("adapter")
            model = peft.get_peft_model(resized(checkpoint), peft.LoraConfig(r=3, target_modules=["q_proj"], task_type="CAUSAL_LM", **fields))
            noisy(model, name, 0.1).save_pretrained(folder, save_embedding_layers=not fields)
            made[name] = checkpoint, folder
        return made[name]

    return get


def theirs_of(checkpoint, folder, dtype=torch.float32, trainable=False):
    return peft.PeftModel.from_pretrained(resized(checkpoint, dtype), folder, is_trainable=trainable).eval().to(DEVICE)


def batch_with_new_tokens(**options):
    batch = text_batch(labels="lm", **options)
    batch["input_ids"][0, 3], batch["input_ids"][2, 5], batch["labels"][1, 4] = 135, 132, 134
    return batch


@pytest.mark.parametrize("how", ["eager", "graft"])
@pytest.mark.parametrize("name", KINDS)
def test_forward_and_gradients(saved, name, how):
    checkpoint, folder = saved(name)
    batch = batch_with_new_tokens(padding="right")
    want = lambda dtype=torch.float32: results(theirs_of(checkpoint, folder, dtype, trainable=True), batch)  # noqa: E731
    assert want()["logits"].shape[-1] == MORE
    assert_close(graft_forward(checkpoint, batch, "--adapter", folder, *COMPILE[how]), want(), 1e-5, lambda: want(torch.float64))


@pytest.mark.parametrize("how", ["eager", "graft"])
def test_beside_rows_of_the_base(saved, how):
    """Rows without the adapter never get a token that the base has not; without any of its rows the logits are the base's."""
    checkpoint, folder = saved("trained")
    batch = {"input_ids": text_batch()["input_ids"].clone()}
    batch["input_ids"][1, 2] = 136
    base, alone = (graft_forward(checkpoint, {"input_ids": batch["input_ids"][rows]}, *flags)["logits"] for rows, flags in (([0, 2], ()), ([1], ("--adapter", folder))))
    got = graft_forward(checkpoint, batch, "--adapter", f"a={folder}", "--adapter-names", "__base__,a,__base__", *COMPILE[how])["logits"]
    assert_close({"logits": got[[0, 2], :, :131]}, {"logits": base}, 1e-5)
    assert_close({"logits": got[1:2]}, {"logits": alone}, 1e-5)
    assert (got[[0, 2], :, 131:] < -1e30).all()
    off = graft_forward(checkpoint, {"input_ids": batch["input_ids"][[0, 2]]}, "--adapter", folder, "--disable-adapter", *COMPILE[how])["logits"]
    assert off.shape == base.shape
    assert_close({"logits": off}, {"logits": base}, 1e-5)


@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize("name", ["trained", "tied"])
def test_generation(saved, name, how, tmp_path):
    checkpoint, folder = saved(name)
    batch = {"input_ids": batch_with_new_tokens()["input_ids"]}
    want = theirs(theirs_of(checkpoint, folder), batch, 6, eos_token_id=None, repetition_penalty=3.0)
    flags = ("--adapter", folder, "--ignore-eos", "--repetition-penalty", 3.0, "--max-new-tokens", 6, *HOW[how])
    same(ours(checkpoint.folder, batch, tmp_path, *flags), want)
    with pytest.raises(AssertionError, match="the model's vocabulary has 131 tokens"):
        ours(checkpoint.folder, batch, tmp_path, "--max-new-tokens", 2)


@pytest.mark.parametrize("name", KINDS)
def test_saved_again(saved, name, tmp_path):
    checkpoint, folder = saved(name)
    run(BUILD / "tests" / "adapter_life_driver", "resave", checkpoint.folder, folder, tmp_path)
    got, want = load_file(tmp_path / "adapter_model.safetensors"), load_file(folder / "adapter_model.safetensors")
    assert got.keys() == want.keys() and all(torch.equal(got[key], want[key]) for key in want)
    theirs_of(checkpoint, tmp_path)


def test_not_merged(saved, tmp_path):
    checkpoint, folder = saved("trained")
    done = run(GRAFT, "merge", "--model", checkpoint.folder, "--adapter", folder, "--output", tmp_path / "merged", check=False)
    assert done.returncode == 1 and "137 tokens in the adapter and 131 in the model" in done.stderr, done.stderr
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("name", ["trained", "trained-tied", "opt"])
def test_with_the_tables_that_peft_saves_in_addition(checkpoints, tmp_path, name):
    """As save_pretrained() does where it finds the base and its vocabulary is another one."""
    case, fields = KINDS[name]
    checkpoint = checkpoints(case)
    model = peft.get_peft_model(resized(checkpoint), peft.LoraConfig(r=3, target_modules=["q_proj"], task_type="CAUSAL_LM", **fields))
    noisy(model, name, 0.1).save_pretrained(tmp_path, save_embedding_layers=True)
    assert any(".original_module." in key for key in load_file(tmp_path / "adapter_model.safetensors"))
    batch = batch_with_new_tokens(padding="right")
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path, "--no-grads"), results(theirs_of(checkpoint, tmp_path), batch, grads=False), 1e-5)


@pytest.mark.parametrize("case", ["llama-gqa", "llama-tied"])
@pytest.mark.parametrize("fields", [dict(trainable_token_indices=[4, 5]), dict(modules_to_save=["embed_tokens"])], ids=["tokens", "table"])
def test_tables_of_a_base_as_it_was(checkpoints, tmp_path, case, fields):
    checkpoint = checkpoints(case)
    model = peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=3, target_modules=["q_proj"], task_type="CAUSAL_LM", **fields))
    noisy(model, case, 0.1).save_pretrained(tmp_path, save_embedding_layers=True)
    batch = text_batch(labels="lm")
    batch["input_ids"][:, 1] = 4
    theirs = peft.PeftModel.from_pretrained(checkpoint.fresh(), tmp_path).eval().to(DEVICE)
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path, "--no-grads"), results(theirs, batch, grads=False), 1e-5)


def test_rows_with_new_tokens(saved, tmp_path):
    """`graft train` goes by the adapter's vocabulary, however rows are given."""
    checkpoint, folder = saved("trained")
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [3, 135, 7, 136]}\n{"input_ids": [5, 132, 134]}\n')
    command = (GRAFT, "train", "--model", checkpoint.folder, "--adapter", folder, "--data", tmp_path / "rows.jsonl", "--output", tmp_path / "out", "--max-steps", 2)
    run(*command)
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [3, 137]}\n')
    done = run(*command[:-3], tmp_path / "other", "--max-steps", 2, check=False)
    assert done.returncode == 1 and "token 137 is not in the vocabulary of 137" in done.stderr, done.stderr
