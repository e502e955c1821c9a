"""Adapters that were made after resize_token_embeddings(): PEFT loads them on a base that was resized, too, graft on the base as it was."""
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

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


TOKENS = {
    "tokens": ("llama-gqa", dict(trainable_token_indices=[3, 131, 132, 133, 134, 135, 136])),
    "tokens-tied": ("llama-tied", dict(trainable_token_indices=[3, 135, 132])),
    "method": ("llama-gqa", None),
    "method-tied": ("llama-tied", None),
}


@pytest.fixture(scope="module")
def with_tokens(checkpoints, tmp_path_factory):
    """(checkpoint, folder) of an adapter that trains new tokens, saved with the whole tables, or without: then all new ones are trained."""
    made = {}

    def get(name, tables):
        if (name, tables) not in made:
            case, fields = TOKENS[name]
            checkpoint, folder = checkpoints(case), tmp_path_factory.mktemp("adapter")
            tokens = [3, 132, 135] if tables else [3, 131, 132, 133, 134, 135, 136]
            config = peft.TrainableTokensConfig(token_indices=tokens, task_type="CAUSAL_LM")
            if fields:
                config = peft.LoraConfig(r=3, target_modules=["q_proj"], task_type="CAUSAL_LM", trainable_token_indices=tokens)
            noisy(peft.get_peft_model(resized(checkpoint), config), name, 0.1).save_pretrained(folder, save_embedding_layers=tables)
            made[name, tables] = checkpoint, folder
        return made[name, tables]

    return get


def known_logits(name, tables, results):
    """An output layer that is not in the file has the base's tokens: what PEFT has for the new ones nobody has saved."""
    if name == "method" or (name == "tokens" and not tables):
        results["logits"] = results["logits"][..., :131]
    return results


@pytest.mark.parametrize("how", ["eager", "graft"])
@pytest.mark.parametrize("name", ["tokens", "tokens-tied", "method-tied"])
def test_new_tokens_that_are_trained(with_tokens, name, how):
    checkpoint, folder = with_tokens(name, tables=True)
    batch = batch_with_new_tokens(padding="right")
    want = lambda dtype=torch.float32: results(theirs_of(checkpoint, folder, dtype, trainable=True), batch)  # noqa: E731
    assert want()["logits"].shape[-1] == MORE
    assert_close(graft_forward(checkpoint, batch, "--adapter", folder, *COMPILE[how]), want(), 1e-5, lambda: want(torch.float64))


@pytest.mark.parametrize("how", ["eager", "graft"])
@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize("name", TOKENS)
def test_new_tokens_without_labels(with_tokens, name, tables, how):
    checkpoint, folder = with_tokens(name, tables)
    batch = batch_with_new_tokens(padding="right")
    batch.pop("labels")
    want = known_logits(name, tables, results(theirs_of(checkpoint, folder), batch, grads=False))
    assert_close(graft_forward(checkpoint, batch, "--adapter", folder, "--no-grads", *COMPILE[how]), want, 1e-5)


@pytest.mark.parametrize("how", ["eager", "graft"])
@pytest.mark.parametrize("name", TOKENS)
def test_new_tokens_beside_others(with_tokens, saved, name, how):
    """In one batch with rows of the base, of an adapter of LoRA on the embedding and of one that knows other tokens."""
    checkpoint, folder = with_tokens(name, tables=True)
    other = saved("tied" if name.endswith("tied") else "beside")[1]
    ids = text_batch()["input_ids"].clone()
    ids[0, 2], ids[1, 3] = 136, 133
    alone = [graft_forward(checkpoint, {"input_ids": ids[row : row + 1]}, *flags, "--no-grads")["logits"] for row, flags in enumerate((("--adapter", folder), ("--adapter", other), ()))]
    got = graft_forward(checkpoint, {"input_ids": ids}, "--adapter", f"a={folder}", "--adapter", f"b={other}", "--adapter-names", "a,b,__base__", "--no-grads", *COMPILE[how])["logits"]
    for row, want in enumerate(alone):
        assert_close({"logits": got[row : row + 1, :, : want.shape[-1]]}, {"logits": want}, 1e-5)
    assert (got[2, :, 131:] < -1e30).all()


@pytest.mark.parametrize("tables", [True, False])
@pytest.mark.parametrize("name", TOKENS)
def test_new_tokens_saved_again(with_tokens, name, tables, tmp_path):
    checkpoint, folder = with_tokens(name, tables)
    run(BUILD / "tests" / "adapter_life_driver", "resave", checkpoint.folder, folder, tmp_path)
    got, want = load_file(tmp_path / "adapter_model.safetensors"), load_file(folder / "adapter_model.safetensors")
    assert got.keys() <= want.keys() and all(torch.equal(got[key], want[key]) for key in got)
    batch = batch_with_new_tokens(padding="right")
    batch.pop("labels")
    assert_close(graft_forward(checkpoint, batch, "--adapter", tmp_path, "--no-grads"), graft_forward(checkpoint, batch, "--adapter", folder, "--no-grads"), 1e-7)


def test_new_tokens_that_nobody_saved(checkpoints, tmp_path):
    checkpoint = checkpoints("llama-gqa")
    config = peft.LoraConfig(r=3, target_modules=["q_proj"], task_type="CAUSAL_LM", trainable_token_indices=[3, 135])
    peft.get_peft_model(resized(checkpoint), config).save_pretrained(tmp_path, save_embedding_layers=False)
    done = run(GRAFT, "merge", "--model", checkpoint.folder, "--adapter", tmp_path, "--output", tmp_path / "merged", check=False)
    assert done.returncode == 1 and "token 135 is none of the 131" in done.stderr and "save_embedding_layers=True" in done.stderr, done.stderr


@pytest.mark.parametrize("how", ["eager", "graft"])
@pytest.mark.parametrize("name", ["tokens", "method-tied"])
def test_tokens_beyond_the_adapters_are_errors(with_tokens, name, how, tmp_path):
    checkpoint, folder = with_tokens(name, tables=True)
    batch = {"input_ids": text_batch()["input_ids"].clone()}
    batch["input_ids"][0, 2] = MORE
    save_file(batch, tmp_path / "in.safetensors")
    files = ("--input", tmp_path / "in.safetensors", "--output", tmp_path / "out.safetensors")
    done = run(GRAFT, "forward", "--model", checkpoint.folder, *files, "--adapter", folder, "--device", DEVICE, *COMPILE[how], check=False)
    assert done.returncode != 0 and "range" in done.stderr, done.stderr


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
