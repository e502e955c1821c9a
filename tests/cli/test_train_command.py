"""graft train as a person meets it: what is wrong is said, with the line of the data, and nothing is left half-written."""
import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

import programs
from programs import GRAFT

SMALL = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=16, pad_token_id=1)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SMALL)).save_pretrained(folder / "lm")
    LlamaForSequenceClassification(LlamaConfig(num_labels=3, **SMALL)).save_pretrained(folder / "classifier")
    (folder / "lora.json").write_text('{"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}')
    save_file({"input_ids": torch.randint(3, 40, (6, 2, 5))}, folder / "tokens.safetensors")
    return folder


class Train:
    def __init__(self, models, tmp_path):
        self.models, self.folder, self.out = models, tmp_path, tmp_path / "out"

    def __call__(self, *flags, model="lm"):
        command = [GRAFT, "train", "--model", self.models / model, "--output", self.out, *flags]
        return programs.run(command, capture_output=True, text=True)

    def rows(self, *lines):
        path = self.folder / "rows.jsonl"
        path.write_bytes(b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
        return ("--adapter-config", self.models / "lora.json", "--data", path)

    def tokens(self):
        return ("--adapter-config", self.models / "lora.json", "--tokens", self.models / "tokens.safetensors")


@pytest.fixture
def train(models, tmp_path):
    return Train(models, tmp_path)


def fails(done, status, *words):
    assert done.returncode == status, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


GOOD = {"input_ids": [3, 4, 5, 6]}
BAD = {
    "broken": (b'{"input_ids": [3, 4', "line 2", "JSON"),
    "no object": (b"[1, 2]", "line 2", "object"),
    "no field": ({"words": "x"}, "line 2", "none of"),
    "wrong type": ({"input_ids": "3 4"}, "line 2", "list of integers"),
    "fractions": ({"input_ids": [3, 4.5]}, "line 2", "list of integers"),
    "empty": ({"input_ids": []}, "line 2", "no token"),
    "one token": ({"input_ids": [3]}, "line 2", "judged"),
    "unknown token": ({"input_ids": [3, 40]}, "line 2", "vocabulary of 40"),
    "labels": ({"input_ids": [3, 4], "labels": [3]}, "line 2", "as long as"),
    "label range": ({"input_ids": [3, 4], "labels": [3, -7]}, "line 2", "-100"),
    "all masked": ({"input_ids": [3, 4], "labels": [-100, -100]}, "line 2", "judged"),
    "too long": ({"input_ids": list(range(3, 20))}, "line 2", "16 positions", "--max-length"),
    "not UTF-8": (b'{"input_ids": [3, 4], "x": "\xff"}', "line 2", "byte 29", "UTF-8"),
    "twice": (b'{"input_ids": [3, 4], "input_ids": [3, 5]}', "line 2", "twice"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_or_skipped(train, name):
    row, *words = BAD[name]
    flags = train.rows(GOOD, row, GOOD)
    fails(train(*flags), 1, *words, "--skip-bad-rows")
    assert not (train.out / "adapter_model.safetensors").exists()
    report = train.folder / "report.json"
    done = train(*flags, "--skip-bad-rows", "--max-steps", 1, "--report", report)
    assert done.returncode == 0, done.stderr
    assert "1 bad rows of 3" in done.stderr and "line 2" in done.stderr
    assert json.loads(report.read_text())["skipped_rows"] == 1


def test_long_rows_are_cut_where_asked(train):
    assert train(*train.rows({"input_ids": list(range(3, 30))}), "--max-length", 16, "--max-steps", 1).returncode == 0


@pytest.mark.parametrize("label", [3, -1, 1.5, "good", None, [0.5, 1]])
def test_a_class_out_of_range(train, label):
    rows = train.rows({**GOOD, "label": 2}, {**GOOD, "label": label})
    fails(train(*rows, model="classifier"), 1, "line 2", "label", "from 0 to 2")


def test_rows_with_two_kinds_of_fields(train):
    both = {**GOOD, "text": "words"}
    done = train(*train.rows(both, both), "--max-steps", 1)
    assert done.returncode == 0 and done.stderr.count('rows have "input_ids" and "text": only "input_ids" is read') == 1, done.stderr


def test_rows_that_are_not_there(train):
    fails(train(*train.rows()), 1, "has no rows")
    fails(train(*train.rows(b"", b"  ")), 1, "has no rows")
    fails(train(*train.rows(b"nonsense"), "--skip-bad-rows"), 1, "only bad rows", "line 1")


def test_text_without_a_tokenizer_is_no_bad_row(train):
    fails(train(*train.rows({"text": "words"}), "--skip-bad-rows"), 1, "tokenizer", "input_ids instead")


@pytest.mark.parametrize("flags", [
    [], ["--full"], ["--tokens", "t"], ["--full", "--adapter", "a", "--tokens", "t"], ["--full", "--tokens", "t", "--data", "d"],
    ["--full", "--tokens", "t", "--lr-scheduler-type", "steep"], ["--full", "--tokens", "t", "--mode", "default"],
    ["--full", "--tokens", "t", "--max-length", "3"], ["--full", "--tokens", "t", "--save-strategy", "best"], ["--full", "--tokens", "t", "--logging-steps", "0"], ["--full", "--tokens", "t", "--optim", "lion"],
])
def test_wrong_usage(train, flags):
    assert train(*flags).returncode == 2


@pytest.mark.parametrize("flag, values", [
    ("--learning-rate", (0, -1, "nan", "inf")), ("--gradient-accumulation-steps", (0,)), ("--max-grad-norm", (-1, "nan")), ("--save-total-limit", (0,)),
    ("--num-train-epochs", (0, -1, "nan", "inf")), ("--adam-beta1", (1, -0.5)), ("--adam-beta2", (1.5, "nan")), ("--adam-epsilon", (-1, "inf")),
    ("--weight-decay", (-1,)), ("--warmup-steps", (-1,)), ("--max-length", (0, -1)), ("--pad-to-multiple-of", (0,)), ("--seed", (-1,)),
    ("--per-device-train-batch-size", (0,)), ("--early-stopping-patience", (-1,)), ("--loraplus-lr-ratio", (0, "nan")),
])
def test_numbers_that_make_no_sense(train, flag, values):
    """Some were taken, and gave NaN or an adapter that nobody had trained; others were no wrong usage, and had Python's names in place of the flag's."""
    for value in values:
        fails(train(*train.tokens(), f"{flag}={value}"), 2, flag, "is not a number")
    assert not train.out.exists()


@pytest.mark.parametrize("flags, words", [
    (["--early-stopping-threshold", 0.1], "--early-stopping-threshold is for --early-stopping-patience"),
    (["--loraplus-lr-embedding", 0.1], "--loraplus-lr-embedding is for --loraplus-lr-ratio"),
    (["--optim", "sgd", "--adam-beta1", 0.5], "--adam-beta1 is for --optim adamw_torch"),
    (["--load-best-model-at-end"], "--load-best-model-at-end goes by evaluations: give --eval-steps, too"),
    (["--early-stopping-patience", 2], "--early-stopping-patience goes by evaluations: give --eval-steps, too"),
])
def test_flags_that_would_change_nothing(train, flags, words):
    fails(train(*train.tokens(), *flags), 2, words)


def test_epochs_beyond_counting(train):
    """Once 0 steps, exit status 0 and an adapter that nobody had trained."""
    fails(train(*train.tokens(), "--num-train-epochs", "1e30"), 1, "num_train_epochs 1e+30 is more steps than can be counted")
    assert not (train.out / "adapter_model.safetensors").exists()


def test_scaled_losses_want_weights_in_float32(train):
    fails(train("--full", "--dtype", "float16", "--fp16", "--tokens", train.models / "tokens.safetensors"), 1, "are float16", "--dtype float32")


def test_a_report_that_cannot_be_written_is_found_before_the_work(train):
    (train.out / "report.html").mkdir(parents=True)
    fails(train(*train.tokens()), 1, "report.html is a folder")
    assert not (train.out / "metrics.jsonl").exists()


def test_a_loss_that_is_no_number_names_the_step(train):
    fails(train(*train.tokens(), "--learning-rate", 1e30, "--max-grad-norm", 0, "--optim", "sgd"), 1, "at step", "learning rate")
    assert not (train.out / "adapter_model.safetensors").exists()


def test_a_folder_of_another_run_is_not_overwritten(train):
    assert train(*train.tokens(), "--save-steps", 3).returncode == 0
    assert sorted(p.name for p in train.out.glob("checkpoint-*")) == ["checkpoint-3", "checkpoint-6"]
    fails(train(*train.tokens()), 1, "--resume")
    done = train(*train.tokens(), "--resume", "--learning-rate", 0.5)
    assert done.returncode == 0 and "learning_rate is 0.5 and was 5e-05" in done.stderr
    other = train.folder / "other.json"
    other.write_text('{"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"]}')
    fails(train("--adapter-config", other, "--tokens", train.models / "tokens.safetensors", "--resume"), 1, "configured otherwise")


def test_resume_without_a_checkpoint_starts(train):
    done = train(*train.tokens(), "--resume")
    assert done.returncode == 0 and "has no checkpoint to resume from yet: the run starts at the beginning" in done.stderr


def test_the_same_seed_gives_the_same_adapter(train):
    first = train(*train.tokens(), "--seed", 3)
    assert first.returncode == 0, first.stderr
    one = (train.out / "adapter_model.safetensors").read_bytes()
    train(*train.tokens(), "--seed", 3)
    assert (train.out / "adapter_model.safetensors").read_bytes() == one
    train(*train.tokens(), "--seed", 4)
    assert (train.out / "adapter_model.safetensors").read_bytes() != one


def test_help_has_an_example():
    done = programs.run([GRAFT, "train", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "Example:" in done.stdout


@pytest.mark.parametrize("more", [(), ("--gradient-accumulation-steps", 2)], ids=["step", "accumulated"])
def test_recomputed_and_compiled_it_is_the_same_run(train, more):
    """With the loss and its gradients compiled by themselves, those of recomputed blocks once reached no parameter."""
    losses = []
    for name, how in (("plain", ()), ("recomputed", ("--gradient-checkpointing",)), ("compiled", ("--gradient-checkpointing", "--compile"))):
        train.out, report = train.folder / name, train.folder / f"{name}.json"
        done = train(*train.tokens(), "--learning-rate", 0.01, "--report", report, *more, *how)
        assert done.returncode == 0, done.stderr
        losses.append(json.loads(report.read_text())["losses"])
    assert len(losses[0]) > 2 and losses[0][0] != losses[0][-1]
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], abs=1e-5)


@pytest.mark.parametrize("precision", ["--bf16", "--fp16"])
def test_recomputed_in_half_precision_it_is_the_same_run(train, precision):
    """Autocast's casts of weights, made while a block was recomputed, were once used for the next step's weights."""
    losses = []
    for name, how in (("plain", ()), ("recomputed", ("--gradient-checkpointing",))):
        train.out, report = train.folder / name, train.folder / f"{name}.json"
        done = train(*train.tokens(), precision, "--learning-rate", 0.1, "--num-train-epochs", 2, "--report", report, *how)
        assert done.returncode == 0, done.stderr
        losses.append(json.loads(report.read_text())["losses"])
    assert len(losses[0]) > 5 and losses[0][0] != losses[0][-1]
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)
