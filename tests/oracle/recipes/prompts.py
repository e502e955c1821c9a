"""Methods that put learned tokens before the input: prompt tuning, prefix tuning, P-tuning."""
from peft import PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig

from adapters import Recipe


def family(prefix, config):
    def recipe(name, model, task="CAUSAL_LM", tokens=4, tolerance=1e-5, **options):
        make = lambda: config(task_type=task, num_virtual_tokens=tokens, **options)  # noqa: E731
        return Recipe(f"{prefix}-{name}", model, make, merges=False, tolerance=tolerance)

    return recipe


prompt = family("prompt", PromptTuningConfig)
prefix = family("prefix", PrefixTuningConfig)
p_tuning = family("p-tuning", PromptEncoderConfig)

RECIPES = [
    prompt("llama", "llama-gqa"),
    prompt("gpt2", "gpt2-lm-untied", tokens=1),
    prompt("opt", "opt-lm-untied", tokens=5),
    prompt("narrow", "opt-lm-narrow", token_dim=13),
    prompt("bert", "bert-class", "SEQ_CLS"),
    prompt("llama-class", "llama-class", "SEQ_CLS"),
    prompt("vocab", "llama-gqa", prompt_tuning_init="SAMPLE_VOCAB"),
    prefix("llama", "llama-gqa"),
    prefix("gpt2", "gpt2-lm-untied", tokens=1),
    prefix("opt", "opt-lm-untied", tokens=5),
    prefix("bert", "bert-class", "SEQ_CLS"),
    prefix("llama-class", "llama-class", "SEQ_CLS"),
    prefix("projected", "llama-gqa", prefix_projection=True, encoder_hidden_size=11),
    prefix("falcon", "falcon-multi-query", num_attention_heads=1, token_dim=8),
    prefix("zero", "opt-lm-untied", init_weights="zero"),
    p_tuning("llama", "llama-gqa"),
    p_tuning("gpt2", "gpt2-lm-untied", encoder_hidden_size=9),
    p_tuning("opt", "opt-lm-untied"),
    p_tuning("bert", "bert-class", "SEQ_CLS"),
    # The decoder's half of a soft prompt is in the file and unused; a prefix is the decoder's. T5's heads are wider than T5 here.
    prompt("t5", "t5-relu", "SEQ_2_SEQ_LM"),
    prompt("t5-encoder", "t5-gated", "SEQ_2_SEQ_LM", num_transformer_submodules=1),
    prefix("t5", "t5-relu", "SEQ_2_SEQ_LM", token_dim=35),
    prefix("t5-projected", "t5-gated", "SEQ_2_SEQ_LM", token_dim=35, prefix_projection=True),
    p_tuning("t5", "t5-relu", "SEQ_2_SEQ_LM"),
    p_tuning("lstm", "llama-gqa", encoder_reparameterization_type="LSTM", encoder_hidden_size=7, encoder_num_layers=3),
]
