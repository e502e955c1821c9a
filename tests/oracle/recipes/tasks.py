"""Methods that are told each row's task: Poly and multitask prompt tuning."""
import torch
from peft import MultitaskPromptTuningConfig, PolyConfig

from adapters import Recipe


def with_tasks(batch):
    return {**batch, "task_ids": torch.tensor([2, 0, 1][: len(next(iter(batch.values())))])}


def by_labels(batch):
    """On an encoder-decoder PEFT leaves out what the decoder is given, and goes by the labels."""
    return with_tasks({key: value for key, value in batch.items() if not key.startswith("decoder_")})


def poly(name, model, task="CAUSAL_LM", **options):
    return Recipe(f"poly-{name}", model, lambda: PolyConfig(task_type=task, n_tasks=3, **options), merges=False, inputs=with_tasks)


def multitask(name, model, task="CAUSAL_LM", tokens=4, **options):
    make = lambda: MultitaskPromptTuningConfig(task_type=task, num_virtual_tokens=tokens, num_tasks=3, **options)  # noqa: E731
    return Recipe(f"multitask-{name}", model, make, merges=False, inputs=by_labels)


RECIPES = [
    poly("llama", "llama-gqa", r=3, target_modules=["q_proj", "up_proj", "down_proj"]),
    poly("splits", "llama-gqa", r=3, n_skills=2, n_splits=4, target_modules=["q_proj", "o_proj"]),
    poly("opt", "opt-lm-untied", r=2, n_skills=5, init_weights=False, modules_to_save=["lm_head"]),
    poly("bert", "bert-class", "SEQ_CLS", r=2, target_modules=["query", "dense"], exclude_modules=["pooler.dense", "classifier"]),
    poly("t5", "t5-relu", "SEQ_2_SEQ_LM", r=2),
    multitask("llama", "llama-gqa", num_ranks=2),
    multitask("gpt2", "gpt2-lm-untied", tokens=1),
    multitask("bert", "bert-class", "SEQ_CLS", num_ranks=3),
    multitask("t5", "t5-relu", "SEQ_2_SEQ_LM", num_transformer_submodules=1),
]
