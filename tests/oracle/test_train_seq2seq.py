"""`graft train` of an encoder-decoder over JSONL, against transformers' Seq2SeqTrainer and its collator."""
import json
import shutil

import peft
import pytest
import tokenizers
import torch
import transformers

from harness import GRAFT, run
from test_train import Python, assert_curve, graft_data, rows_of


def pairs_of(count, seed=5):
    """A source, and what is to be made of it: its tokens in reverse, of another length."""
    return [{"input_ids": row["input_ids"], "labels": [*reversed(row["input_ids"][:-2]), 2]} for row in rows_of(count, seed=seed)]


def collator(model):
    """DataCollatorForSeq2Seq, over a tokenizer that only pads."""
    words = tokenizers.models.WordLevel({"<unk>": 0, "<pad>": 1}, unk_token="<unk>")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), pad_token="<pad>")
    return transformers.DataCollatorForSeq2Seq(tokenizer, model=model)


@pytest.mark.parametrize("compiled", [False, True])
def test_jsonl_of_an_encoder_decoder(checkpoints, tmp_path, compiled):
    """transformers' Seq2SeqTrainer with its collator: sources and labels padded each by itself, the decoder's inputs made of the labels."""
    checkpoint = checkpoints("t5-relu")
    rows, held_out = pairs_of(21), pairs_of(9, seed=6)
    config = peft.LoraConfig(r=3, target_modules=["q", "v", "wi"], task_type="SEQ_2_SEQ_LM")
    python = Python(checkpoint, config, tmp_path / "adapter")
    settings = dict(num_train_epochs=2, per_device_train_batch_size=4, learning_rate=5e-3, warmup_steps=2)
    flags = [str(part) for key, value in settings.items() for part in ("--" + key.replace("_", "-"), value)]
    how = ("--compile", "--fullgraph", "--pad-to-multiple-of", 4) if compiled else ()
    report = graft_data(checkpoint, rows, tmp_path, *flags, "--seed", 11, *python.flags, *how, eval_rows=held_out)
    arguments = transformers.Seq2SeqTrainingArguments(
        output_dir=tmp_path / "python", logging_steps=1, report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True,
        remove_unused_columns=False, seed=11, **settings)
    collate = collator(python.model)
    trainer = transformers.Seq2SeqTrainer(python.model, arguments, data_collator=collate, train_dataset=rows)
    trainer.train()
    assert_curve(report["losses"], [line["loss"] for line in trainer.state.log_history if "loss" in line])
    assert report["losses"][-1] < report["losses"][0]
    batch = collate([dict(row) for row in held_out])
    with torch.no_grad():
        out = python.model.eval()(**batch)
    judged = batch["labels"] != -100
    assert report["eval"]["loss"] == pytest.approx(out.loss.item(), abs=1e-4)
    assert report["eval"]["accuracy"] == pytest.approx((out.logits.argmax(-1) == batch["labels"])[judged].float().mean().item(), abs=1e-6)


def test_text_for_an_encoder_decoder(checkpoints, tmp_path):
    """prompt and completion are tokenizer(prompt) and tokenizer(text_target=completion): the same run as over their ids."""
    folder = tmp_path / "model"
    shutil.copytree(checkpoints("t5-relu").folder, folder)
    words = {"<pad>": 1, "</s>": 2, "<unk>": 3} | {word: 4 + i for i, word in enumerate("one two three four five six seven".split())}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    tokenizer.save_pretrained(folder)
    texts = [("one two three", "three two one"), ("four five", "five four six"), ("seven", "one seven")] * 2
    ids = [{"input_ids": tokenizer(a)["input_ids"], "labels": tokenizer(text_target=b)["input_ids"]} for a, b in texts]
    assert ids[0]["labels"][-1] == 2
    (tmp_path / "lora.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "target_modules": ["q", "v"]}))
    reports = []
    for name, rows in (("text", [{"prompt": a, "completion": b} for a, b in texts]), ("ids", ids)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        report = tmp_path / name / "report.json"
        run(GRAFT, "train", "--model", folder, "--data", tmp_path / name / "rows.jsonl", "--adapter-config", tmp_path / "lora.json", "--output",
            tmp_path / name / "out", "--report", report, "--max-steps", 3, "--per-device-train-batch-size", 2)
        reports.append(json.loads(report.read_text())["losses"])
    assert reports[0] == reports[1]
    for bad, why in (({"text": "one"}, "completion"), ({"input_ids": [4]}, "labels"), ({"prompt": "one"}, "completion"),
                     ({"input_ids": [4], "labels": [-100]}, "judged")):
        (tmp_path / "bad.jsonl").write_text(json.dumps(bad) + "\n")
        done = run(GRAFT, "train", "--model", folder, "--data", tmp_path / "bad.jsonl", "--adapter-config", tmp_path / "lora.json", "--output",
                   tmp_path / "never", check=False)
        assert done.returncode == 1 and why in done.stderr, done.stderr
