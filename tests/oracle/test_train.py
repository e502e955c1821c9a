"""graft train against PEFT, torch's AdamW and transformers' schedulers: the same losses at every step."""
import json
import shutil
import subprocess
import time
import xml.etree.ElementTree

import peft
import peft.optimizers
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import Trainer

from adapters import noisy
from harness import GRAFT, run, seed_of
from recipes import RECIPES

STEPS = 50
COMPILE = {"eager": (), "graft": ("--compile", "--fullgraph")}
LINEAR = dict(r=4, lora_alpha=9, target_modules="all-linear")
SUBJECTS = {  # what is trained: PEFT's configuration, or None for the whole model
    "lora": lambda: peft.LoraConfig(**LINEAR),
    "dora": lambda: peft.LoraConfig(use_dora=True, **LINEAR),
    "ia3": lambda: peft.IA3Config(),
    "oft": lambda: peft.OFTConfig(oft_block_size=4, target_modules=["q_proj", "v_proj", "down_proj"]),
    "adalora": lambda: peft.AdaLoraConfig(init_r=6, target_r=3, tinit=5, tfinal=10, deltaT=4, total_step=STEPS,
                                          target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"),
    "full": lambda: None,
}


def tokens(steps=STEPS, batch=3, seq=9, vocab=131, masked=0.0):
    """Batches from a few patterns, so that there is something to learn."""
    generator = torch.Generator().manual_seed(seed_of(f"{steps} {batch} {seq}"))
    start = torch.randint(3, vocab, (steps, batch, 1), generator=generator)
    ids = 3 + (start + 7 * torch.arange(seq)) % (vocab - 3)
    result = {"input_ids": ids.contiguous()}
    if masked:
        result["labels"] = ids.masked_fill(torch.rand(ids.shape, generator=generator) < masked, -100)
    return result


class Python:
    """The reference: the model, and a loop as transformers' Trainer has it."""

    def __init__(self, checkpoint, config, folder, noise=0.05):
        self.model = checkpoint.fresh()
        self.folder = folder
        if config is not None:
            torch.manual_seed(1)
            self.model = noisy(peft.get_peft_model(self.model, config), "train", noise)
            self.model.save_pretrained(folder)
        self.flags = ("--adapter", folder) if config is not None else ("--full",)

    def train(self, data, steps, lr=1e-3, schedule="linear", warmup=0, decay=0.0, accumulate=1, clip=1.0, optim=torch.optim.AdamW,
              autocast=None):
        model = self.model.train()
        decayed = Trainer.get_decay_parameter_names(None, model)
        named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
        groups = [{"params": [p for n, p in named if n in decayed], "weight_decay": decay},
                  {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0}]
        optimizer = optim([g for g in groups if g["params"]], lr=lr)
        scheduler = transformers.get_scheduler(schedule, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
        losses, self.scales = [], []
        scaler = torch.amp.GradScaler("cpu", enabled=autocast == torch.float16)
        for step in range(steps):
            rows = range(step * accumulate, (step + 1) * accumulate)
            labels = data.get("labels", data["input_ids"])
            count = sum((labels[i][:, 1:] != -100).sum() for i in rows)
            total = 0.0
            for i in rows:
                with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
                    loss = model(input_ids=data["input_ids"][i], labels=labels[i], num_items_in_batch=count).loss
                scaler.scale(loss).backward()
                total += loss.item()
            scaler.unscale_(optimizer)
            if clip:
                torch.nn.utils.clip_grad_norm_([p for _, p in named], clip)
            scaler.step(optimizer)
            self.scales.append(scaler.get_scale())
            scaler.update()
            skipped = scaler.get_scale() < self.scales[-1]
            if getattr(model, "peft_type", None) == "ADALORA":  # as PEFT asks for it in every loop
                model.base_model.update_and_allocate(step)
            if not skipped:  # as transformers' Trainer has it
                scheduler.step()
            optimizer.zero_grad()
            losses.append(total)
        return losses


def graft_train(checkpoint, data, tmp_path, *flags, name="out"):
    save_file(data, tmp_path / "tokens.safetensors")
    out, report = tmp_path / name, tmp_path / (name + ".json")
    run(GRAFT, "train", "--model", checkpoint.folder, "--tokens", tmp_path / "tokens.safetensors", "--output", out, "--report", report, *flags)
    return json.loads(report.read_text()), out


def assert_curve(got, want, tolerance=1e-4):
    assert len(got) == len(want)
    worst = max(range(len(want)), key=lambda i: abs(got[i] - want[i]))
    assert abs(got[worst] - want[worst]) <= tolerance, f"step {worst + 1}: {got[worst]} instead of {want[worst]}"


@pytest.mark.parametrize("how", COMPILE)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_loss_curve(checkpoints, tmp_path, subject, how):
    checkpoint = checkpoints("llama-gqa")
    python = Python(checkpoint, SUBJECTS[subject](), tmp_path / "adapter")
    data = tokens()
    lr = 2e-2 if subject == "ia3" else 1e-3  # few numbers, each a factor
    flags = ("--max-steps", STEPS, "--learning-rate", lr, *python.flags, *COMPILE[how])
    report, out = graft_train(checkpoint, data, tmp_path, *flags)
    want = python.train(data, STEPS, lr=lr)
    assert sum(want[-10:]) < sum(want[:10])
    assert_curve(report["losses"], want)
    # Python loads what came out, and it is what Python has.
    if subject == "full":
        got = type(python.model).from_pretrained(out)
    else:
        got = peft.PeftModel.from_pretrained(checkpoint.fresh(), out)
    with torch.no_grad():
        batch = data["input_ids"][0]
        ours, theirs = got.eval()(batch).logits, python.model.eval()(batch).logits
    assert (ours - theirs).abs().max() < 5e-3 * theirs.abs().max()


@pytest.mark.parametrize("how", COMPILE)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision(checkpoints, tmp_path, dtype, how):
    """Under autocast, with float16's loss scaled: so much that the first gradients overflow, and their steps are left out."""
    checkpoint = checkpoints("llama-gqa")
    python = Python(checkpoint, SUBJECTS["lora"](), tmp_path / "adapter")
    data = tokens(12)
    flag = "--bf16" if dtype == "bfloat16" else "--fp16"
    report, out = graft_train(checkpoint, data, tmp_path, "--learning-rate", 1e-2, flag, *python.flags, *COMPILE[how])
    want = python.train(data, 12, lr=1e-2, autocast=getattr(torch, dtype))
    rounding = torch.finfo(getattr(torch, dtype)).eps
    assert_curve(report["losses"], want, 4 * rounding)
    exact = Python(checkpoint, SUBJECTS["lora"](), tmp_path / "adapter").train(data, 12, lr=1e-2)
    assert max(abs(a - b) for a, b in zip(report["losses"], exact)) > 1e-6
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    skipped = [after < before for before, after in zip(python.scales, [*python.scales[1:], python.scales[-1]])]
    assert [line.get("skipped", False) for line in lines][:-1] == skipped[:-1]


def methods():
    """The first Recipe of every method that trains on a Llama; HRA in CI, whose solver has no half precision."""
    found = {}
    for recipe in RECIPES:
        config = recipe.config()
        if recipe.model == "llama-gqa" and recipe.trains and not config.is_prompt_learning and not config.is_adaption_prompt:
            found.setdefault(config.peft_type.value, recipe)
    for method in ("POLY", "PVERA"):  # it asks for tasks; it draws random numbers
        found.pop(method, None)
    return [pytest.param(recipe, id=method, marks=[] if method == "HRA" else [pytest.mark.full]) for method, recipe in found.items()]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("recipe", methods())
def test_method_in_mixed_precision(checkpoints, tmp_path, recipe, dtype):
    checkpoint = checkpoints("llama-gqa")
    python = Python(checkpoint, recipe.config(), tmp_path / "adapter", recipe.noise)
    data = tokens(6)
    try:
        want = python.train(data, 6, lr=1e-3, autocast=getattr(torch, dtype))
    except RuntimeError as error:
        pytest.skip(f"PEFT: {error}")
    flag = "--bf16" if dtype == "bfloat16" else "--fp16"
    for how in COMPILE.values():
        report, _ = graft_train(checkpoint, data, tmp_path, "--learning-rate", 1e-3, flag, *python.flags, *how)
        assert_curve(report["losses"], want, 4 * torch.finfo(getattr(torch, dtype)).eps)


@pytest.mark.parametrize("schedule", ["constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt"])
def test_schedules(checkpoints, tmp_path, schedule):
    checkpoint = checkpoints("llama-gqa")
    python = Python(checkpoint, SUBJECTS["lora"](), tmp_path / "adapter")
    data = tokens(12)
    report, _ = graft_train(checkpoint, data, tmp_path, "--learning-rate", 2e-3, "--lr-scheduler-type", schedule, "--warmup-steps", 3, *python.flags)
    assert_curve(report["losses"], python.train(data, 12, lr=2e-3, schedule=schedule, warmup=3))
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-3)
    scheduler = transformers.get_scheduler(schedule, optimizer, num_warmup_steps=3, num_training_steps=12)
    for line in lines:
        assert line["learning_rate"] == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12, abs=1e-18)
        optimizer.step()
        scheduler.step()
    assert len(lines) == 12


@pytest.mark.parametrize("model", ["llama-mha-bias", "gpt2-lm-untied"])
def test_decay_accumulation_and_clipping(checkpoints, tmp_path, model):
    """Batches of unequal numbers of labels; decay of matrices only, also where norms are called ln_1."""
    checkpoint = checkpoints(model)
    python = Python(checkpoint, None, tmp_path / "adapter")
    python.model.config.attn_pdrop = 0
    data = tokens(24, masked=0.5)
    report, _ = graft_train(checkpoint, data, tmp_path, "--learning-rate", 1e-3, "--weight-decay", 0.5, "--gradient-accumulation-steps", 3,
                            "--max-grad-norm", 0.3, *python.flags)
    assert_curve(report["losses"], python.train(data, 8, decay=0.5, accumulate=3, clip=0.3))


OPTIMIZERS = {
    "sgd": torch.optim.SGD,
    "adafactor": lambda groups, lr: transformers.Adafactor(groups, lr=lr, scale_parameter=False, relative_step=False),
}


@pytest.mark.parametrize("name, lr", [("sgd", 0.1), ("adafactor", 1e-3)])
def test_other_optimizers(checkpoints, tmp_path, name, lr):
    checkpoint = checkpoints("llama-mha-bias")
    python = Python(checkpoint, None, tmp_path / "adapter")
    data = tokens(8)
    flags = ("--learning-rate", lr, "--optim", name, "--weight-decay", 0.1, "--lr-scheduler-type", "constant")
    report, _ = graft_train(checkpoint, data, tmp_path, *flags, *python.flags)
    assert_curve(report["losses"], python.train(data, 8, lr=lr, decay=0.1, schedule="constant", optim=OPTIMIZERS[name]))


def fresh_lora(tmp_path, **options):
    config = tmp_path / "lora.json"
    config.write_text(json.dumps({"peft_type": "LORA", "r": 4, "target_modules": "all-linear", **options}))
    return ("--adapter-config", config)


@pytest.mark.parametrize("how", COMPILE)
def test_killed_and_resumed_is_the_same_run(checkpoints, tmp_path, how):
    """With dropout: the random numbers go on, too."""
    checkpoint = checkpoints("llama-gqa")
    data = tokens(300, seq=30)
    flags = (*fresh_lora(tmp_path, lora_dropout=0.3), "--learning-rate", 1e-3, "--save-steps", 40, "--save-total-limit", 2, *COMPILE[how])
    whole, out = graft_train(checkpoint, data, tmp_path, *flags, name="whole")
    assert sorted(p.name for p in out.glob("checkpoint-*")) == ["checkpoint-240", "checkpoint-280"]

    killed = tmp_path / "killed"
    command = [GRAFT, "train", "--model", checkpoint.folder, "--tokens", tmp_path / "tokens.safetensors", "--output", killed, *flags]
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (killed / "checkpoint-80").exists():
        assert process.poll() is None, "it ended by itself"
        time.sleep(0.001)
    process.kill()
    assert process.wait() == -9
    assert not (killed / "adapter_model.safetensors").exists()

    # A later checkpoint that is not whole is passed over, and so is what a kill in the middle of a save leaves.
    last = max(killed.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    shutil.copytree(last, killed / "checkpoint-290")
    shutil.copytree(last, killed / ".unfinished-checkpoint-120")
    broken = killed / "checkpoint-290" / "optimizer.safetensors"
    broken.write_bytes(broken.read_bytes()[:-5])
    resumed, _ = graft_train(checkpoint, data, tmp_path, *flags, "--resume", name="killed")
    assert resumed["losses"] == whole["losses"]
    for name in ("adapter_model.safetensors", "checkpoint-280/optimizer.safetensors", "checkpoint-280/rng_state.safetensors"):
        assert (killed / name).read_bytes() == (out / name).read_bytes(), name
    assert [json.loads(line)["step"] for line in (killed / "metrics.jsonl").read_text().splitlines()] == list(range(1, 301))


def test_resume_of_a_whole_model(checkpoints, tmp_path):
    """Tied weights, and running statistics that are no parameters."""
    checkpoint = checkpoints("llama-tied")
    data = tokens(12)
    flags = ("--full", "--learning-rate", 1e-3, "--save-steps", 5)
    whole, out = graft_train(checkpoint, data, tmp_path, *flags, name="whole")
    part = tmp_path / "part"
    part.mkdir()
    shutil.copytree(out / "checkpoint-5", part / "checkpoint-5")
    resumed, _ = graft_train(checkpoint, data, tmp_path, *flags, "--resume", name="part")
    assert resumed["losses"] == whole["losses"]
    assert (part / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()


def rows_of(count, vocab=131, seed=5):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        length = int(torch.randint(3, 12, (1,), generator=generator))
        start = int(torch.randint(0, vocab, (1,), generator=generator))
        rows.append({"input_ids": [3 + (start + 5 * i) % (vocab - 3) for i in range(length)]})
    return rows


def padded(rows):
    width = max(len(row["input_ids"]) for row in rows)
    fill = lambda values, value: values + [value] * (width - len(values))
    batch = {
        "input_ids": torch.tensor([fill(row["input_ids"], 1) for row in rows]),
        "attention_mask": torch.tensor([fill([1] * len(row["input_ids"]), 0) for row in rows]),
    }
    if "label" in rows[0]:
        return batch | {"labels": torch.tensor([row["label"] for row in rows])}
    return batch | {"labels": torch.tensor([fill(row.get("labels", row["input_ids"]), -100) for row in rows])}


def trainer_losses(model, rows, folder, **arguments):
    arguments = transformers.TrainingArguments(
        output_dir=folder, logging_steps=1, report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        seed=11, **arguments)
    trainer = Trainer(model, arguments, data_collator=padded, train_dataset=rows)
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line], trainer


def graft_data(checkpoint, rows, tmp_path, *flags, eval_rows=None):
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if eval_rows:
        (tmp_path / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in eval_rows))
        flags = (*flags, "--eval-data", tmp_path / "eval.jsonl")
    report = tmp_path / "report.json"
    run(GRAFT, "train", "--model", checkpoint.folder, "--data", tmp_path / "rows.jsonl", "--output", tmp_path / "out", "--report", report, *flags)
    return json.loads(report.read_text())


def test_jsonl_is_transformers_trainer(checkpoints, tmp_path):
    """The whole of it: order by seed, padding, epochs, an odd last batch, accumulation, labels that are masked."""
    checkpoint = checkpoints("llama-gqa")
    rows = rows_of(21)
    for row in rows[::3]:
        row["labels"] = [-100, -100, *row["input_ids"][2:]]
    python = Python(checkpoint, SUBJECTS["lora"](), tmp_path / "adapter")
    settings = dict(num_train_epochs=2, per_device_train_batch_size=4, gradient_accumulation_steps=4, learning_rate=2e-3,
                    lr_scheduler_type="cosine", warmup_steps=2, weight_decay=0.1)
    flags = [str(part) for key, value in settings.items() for part in ("--" + key.replace("_", "-"), value)]
    report = graft_data(checkpoint, rows, tmp_path, *flags, "--seed", 11, *python.flags, eval_rows=rows_of(9, seed=6))
    want, trainer = trainer_losses(python.model, rows, tmp_path / "python", **settings)
    assert_curve(report["losses"], want)
    batch = padded(rows_of(9, seed=6))
    with torch.no_grad():
        out = python.model.eval()(**batch)
    wanted, best = batch["labels"][:, 1:], out.logits[:, :-1].argmax(-1)
    assert report["eval"]["loss"] == pytest.approx(out.loss.item(), abs=1e-4)
    assert report["eval"]["perplexity"] == pytest.approx(out.loss.exp().item(), rel=1e-4)
    assert report["eval"]["accuracy"] == pytest.approx(((best == wanted).sum() / (wanted != -100).sum()).item(), abs=1e-6)


def test_classifier(checkpoints, tmp_path):
    checkpoint = checkpoints("bert-class")
    count = checkpoint.model.config.num_labels
    rows = [{**row, "label": row["input_ids"][0] % count} for row in rows_of(24)]
    python = Python(checkpoint, peft.LoraConfig(r=2, target_modules=["query", "dense"], task_type="SEQ_CLS"), tmp_path / "adapter")
    report = graft_data(checkpoint, rows, tmp_path, "--num-train-epochs", 2, "--per-device-train-batch-size", 5, "--learning-rate", 3e-3, "--seed", 11,
                        *python.flags, eval_rows=rows)
    want, _ = trainer_losses(python.model, rows, tmp_path / "python", num_train_epochs=2, per_device_train_batch_size=5, learning_rate=3e-3)
    assert_curve(report["losses"], want)
    with torch.no_grad():
        batch = padded(rows)
        best = python.model.eval()(**batch).logits.argmax(-1)
    assert report["eval"]["accuracy"] == pytest.approx((best == batch["labels"]).float().mean().item(), abs=1e-6)
    assert "perplexity" not in report["eval"]


def test_what_tensorboard_reads(checkpoints, tmp_path):
    """TensorBoard's own reader checks every checksum on the way; a resumed run adds a file, and the two are one curve."""
    checkpoint = checkpoints("llama-gqa")
    flags = Python(checkpoint, SUBJECTS["lora"](), tmp_path / "adapter").flags
    data = tokens(8)
    graft_train(checkpoint, data, tmp_path, "--learning-rate", 2e-3, "--max-steps", 5, "--save-steps", 5, *flags)
    report, out = graft_train(checkpoint, data, tmp_path, "--learning-rate", 2e-3, "--max-steps", 8, "--resume", *flags)
    events = EventAccumulator(str(out / "runs")).Reload()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for tag, name in [("train/loss", "loss"), ("train/learning_rate", "learning_rate"), ("train/grad_norm", "grad_norm"), ("train/epoch", "epoch")]:
        assert [e.step for e in events.Scalars(tag)] == list(range(1, 9)), tag
        assert [e.value for e in events.Scalars(tag)] == pytest.approx([line[name] for line in lines], rel=1e-6), tag
    page = (out / "report.html").read_text()
    root = xml.etree.ElementTree.fromstring(page.removeprefix("<!doctype html>\n").replace('<meta charset="utf-8">', ""))
    curves = [figure.find("figcaption").text for figure in root.iter("figure")]
    assert curves == ["loss", "learning rate", "norm of the gradients", "tokens per second"]
    assert all(len(line.get("points").split()) == 8 for line in root.iter("polyline"))
    assert "src=" not in page and "http" not in page


@pytest.mark.parametrize("compile", [False, True])
def test_the_best_model_and_an_early_end(checkpoints, tmp_path, compile):
    """A learning rate that is too high: the loss falls, then rises. transformers' callback says when to stop; PEFT loads the best model."""
    checkpoint = checkpoints("llama-gqa")
    python = Python(checkpoint, SUBJECTS["lora"](), tmp_path / "adapter")
    held_out = tokens(1)["input_ids"]
    save_file({"input_ids": held_out}, tmp_path / "eval.safetensors")
    flags = ["--learning-rate", 0.05, "--lr-scheduler-type", "constant", "--eval-data", tmp_path / "eval.safetensors", "--eval-steps", 2,
             "--load-best-model-at-end", "--early-stopping-patience", 2, "--early-stopping-threshold", 0.01, "--save-total-limit", 1]
    report, out = graft_train(checkpoint, tokens(40), tmp_path, *flags, *python.flags, *(["--compile"] if compile else []))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found = {line["step"]: line["eval_loss"] for line in lines if "eval_loss" in line}
    callback = transformers.EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=0.01)
    args = transformers.TrainingArguments(output_dir=str(tmp_path / "unused"), metric_for_best_model="loss", greater_is_better=False)
    state, control, stop = transformers.TrainerState(), transformers.TrainerControl(), None
    for step, loss in found.items():
        callback.check_metric_value(args, state, control, loss)
        if state.best_metric is None or loss < state.best_metric:
            state.best_metric = loss
        if callback.early_stopping_patience_counter >= 2:
            stop = step
            break
    assert stop is not None and stop < 40, found
    assert list(found) == list(range(2, stop + 1, 2)) and report["global_step"] == stop and report["stopped_early"]
    assert report["best_step"] == min(found, key=found.get) < stop
    best = peft.PeftModel.from_pretrained(checkpoint.fresh(), out).eval()
    with torch.no_grad():
        loss = best(input_ids=held_out[0], labels=held_out[0]).loss.item()
    assert loss == pytest.approx(min(found.values()), abs=1e-4)
    assert report["eval"]["loss"] == pytest.approx(min(found.values()), abs=1e-4)
    assert (out / f"checkpoint-{report['best_step']}").exists()


@pytest.mark.parametrize("compile", [False, True])
def test_loraplus(checkpoints, tmp_path, compile):
    checkpoint = checkpoints("llama-gqa")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj", "embed_tokens"], bias="lora_only")
    python = Python(checkpoint, config, tmp_path / "adapter")
    data = tokens(20)
    flags = ["--loraplus-lr-ratio", 8, "--loraplus-lr-embedding", 3e-4, "--lr-scheduler-type", "constant", "--max-grad-norm", 0, "--weight-decay", 0.1]
    report, _ = graft_train(checkpoint, data, tmp_path, "--learning-rate", 1e-3, *flags, *python.flags, *(["--compile"] if compile else []))
    model = python.model.train()
    optimizer = peft.optimizers.create_loraplus_optimizer(model, torch.optim.AdamW, lr=1e-3, loraplus_lr_ratio=8, loraplus_lr_embedding=3e-4,
                                                          loraplus_weight_decay=0.1)
    losses = []
    for ids in data["input_ids"]:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert_curve(report["losses"], losses)
