"""A hub id or a cache entry in place of a folder: found where huggingface_hub finds it, and said where it was looked for."""
import json
import os
import shutil

import huggingface_hub
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

import programs
from harness import GRAFT

COMMIT = "5d0f3a9c0c9a4f0b8a7e6d5c4b3a29180f1e2d3c"


def graft(*words, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE_", "XDG_CACHE"))}
    return programs.run([GRAFT, *words], capture_output=True, text=True, env={**environment, **{name: str(value) for name, value in variables.items()}})


def fetched(cache, id, folder, commit=COMMIT, ref="main"):
    """An entry as `hf download` leaves it: files under blobs/, links to them in the snapshot."""
    entry = cache / huggingface_hub.file_download.repo_folder_name(repo_id=id, repo_type="model")
    snapshot = entry / "snapshots" / commit
    for made in (snapshot, entry / "blobs", entry / "refs"):
        made.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        shutil.copy(path, entry / "blobs" / f"{commit}{number}")
        (snapshot / path.name).symlink_to(f"../../blobs/{commit}{number}")
    if ref:
        (entry / "refs" / ref).write_text(commit)
    return entry


@pytest.fixture(scope="module")
def world(checkpoints, tmp_path_factory):
    checkpoint, folder = checkpoints("llama-gqa"), tmp_path_factory.mktemp("hub")
    torch.manual_seed(0)
    model = peft.get_peft_model(checkpoint.fresh(), peft.LoraConfig(r=3, target_modules=["q_proj"], init_lora_weights=False))
    model.save_pretrained(folder / "adapter")
    fetched(folder / "home" / "hub", "me/tiny", checkpoint.folder)
    fetched(folder / "home" / "hub", "me/tiny-lora", folder / "adapter", "0b1e")
    save_file({"input_ids": torch.arange(12).view(2, 6)}, folder / "in.safetensors")
    done = graft("forward", "--model", checkpoint.folder, "--adapter", folder / "adapter", "--input", folder / "in.safetensors", "--output", folder / "want.safetensors")
    assert done.returncode == 0, done.stderr
    return folder, checkpoint


WHERE = {
    "HF_HOME": lambda home: dict(HF_HOME=home),
    "HF_HUB_CACHE": lambda home: dict(HF_HUB_CACHE=home / "hub", HF_HOME="/nowhere"),
    "HUGGINGFACE_HUB_CACHE": lambda home: dict(HUGGINGFACE_HUB_CACHE=home / "hub", HF_HOME="/nowhere"),
    "XDG_CACHE_HOME": lambda home: dict(XDG_CACHE_HOME=home / "cache"),
    "HOME": lambda home: dict(HOME=home),
    "HF_HOME with ~": lambda home: dict(HOME=home.parent, HF_HOME="~/home"),
}


@pytest.mark.parametrize("name", WHERE)
def test_found_where_huggingface_hub_looks(world, tmp_path, name):
    folder, _ = world
    home = tmp_path / "home"
    shutil.copytree(folder / "home", home, symlinks=True)
    for beside in (home / "cache", home / ".cache"):
        beside.mkdir()
        (beside / "huggingface").symlink_to(home)
    out = tmp_path / "out.safetensors"
    done = graft("forward", "--model", "me/tiny", "--adapter", "me/tiny-lora", "--input", folder / "in.safetensors", "--output", out, **WHERE[name](home))
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_file(out)["logits"], load_file(folder / "want.safetensors")["logits"])


@pytest.mark.parametrize("model", ["entry", "snapshot"])
def test_a_path_into_the_cache(world, tmp_path, model):
    folder, _ = world
    entry = folder / "home" / "hub" / "models--me--tiny"
    out = tmp_path / "out.safetensors"
    done = graft("forward", "--model", entry if model == "entry" else entry / "snapshots" / COMMIT, "--adapter",
                 f"x={folder / 'home' / 'hub' / 'models--me--tiny-lora'}", "--input", folder / "in.safetensors", "--output", out)
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_file(out)["logits"], load_file(folder / "want.safetensors")["logits"])


def test_a_folder_goes_before_the_cache(world, tmp_path):
    folder, _ = world
    (tmp_path / "me" / "tiny").mkdir(parents=True)
    done = programs.run([GRAFT, "info", "me/tiny"], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "HF_HOME": str(folder / "home")})
    assert done.returncode == 1 and "config.json" in done.stderr, done.stderr


def test_what_is_not_there(world, tmp_path):
    folder, _ = world
    home = folder / "home"
    done = graft("info", "me/other", HF_HOME=home)
    assert done.returncode == 1 and f'looked for "{home}/hub/models--me--other"' in done.stderr and "hf download me/other" in done.stderr, done.stderr
    done = graft("forward", "--model", "me/tiny", "--adapter", "me/none:x", "--input", folder / "in.safetensors", "--output", tmp_path / "o", HF_HOME=home)
    assert done.returncode == 1 and "me/none" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = graft("info", "no/such.safetensors", HF_HOME=home)
    assert done.returncode == 1 and "No such file" in done.stderr, done.stderr


def test_entries_that_are_not_whole(world, tmp_path):
    folder, checkpoint = world
    entry = fetched(tmp_path / "hub", "me/tiny", checkpoint.folder, "aaaa", ref="v2")
    assert graft("info", "me/tiny", HF_HOME=tmp_path).returncode == 0  # the only one there is
    fetched(tmp_path / "hub", "me/tiny", checkpoint.folder, "bbbb", ref="v3")
    done = graft("info", "me/tiny", HF_HOME=tmp_path)
    assert done.returncode == 1 and "no refs/main and 2 snapshots" in done.stderr, done.stderr
    (entry / "refs" / "main").write_text("cccc")
    done = graft("info", entry)
    assert done.returncode == 1 and "names the snapshot cccc, which is not there" in done.stderr, done.stderr
    (entry / "refs" / "main").write_text("../../../..")
    assert "which is not there" in graft("info", entry).stderr


def test_names_that_are_written(world, tmp_path):
    """The adapter names its base by the id, and PEFT's loader is content; no warning about another base by any of its names."""
    folder, _ = world
    home = folder / "home"
    (tmp_path / "lora.json").write_text('{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}')
    done = graft("init", "--model", "me/tiny", "--adapter-config", tmp_path / "lora.json", "--output", tmp_path / "new", HF_HOME=home)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "new" / "adapter_config.json").read_text())["base_model_name_or_path"] == "me/tiny"
    for model in ("me/tiny", home / "hub" / "models--me--tiny"):
        done = graft("forward", "--model", model, "--adapter", tmp_path / "new", "--input", folder / "in.safetensors", "--output", tmp_path / "o", HF_HOME=home)
        assert done.returncode == 0 and "was made for" not in done.stderr, done.stderr


def test_shards_in_folders(world, tmp_path):
    folder, checkpoint = world
    shutil.copytree(checkpoint.folder, tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "part" / "two").mkdir(parents=True)
    names = sorted(tensors)
    halves = {"part/a.safetensors": names[::2], "part/two/b.safetensors": names[1::2]}
    for file, some in halves.items():
        save_file({name: tensors[name] for name in some}, tmp_path / "model" / file, metadata={"format": "pt"})
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {name: file for file, some in halves.items() for name in some}}))
    out = tmp_path / "out.safetensors"
    done = graft("forward", "--model", tmp_path / "model", "--adapter", folder / "adapter", "--input", folder / "in.safetensors", "--output", out)
    assert done.returncode == 0, done.stderr
    assert torch.equal(load_file(out)["logits"], load_file(folder / "want.safetensors")["logits"])


def test_info_of_an_adapter(world):
    folder, _ = world
    done = graft("info", "me/tiny-lora", HF_HOME=folder / "home")
    lines = dict(line.split(None, 1) for line in done.stdout.splitlines()[:12] if line.strip())
    assert lines["adapter"] == "LORA" and lines["r"] == "3" and lines["lora_alpha"] == "8" and lines["target_modules"] == "q_proj", done.stdout
    assert json.loads(graft("info", "me/tiny-lora", "--json", HF_HOME=folder / "home").stdout)["settings"]["r"] == 3
