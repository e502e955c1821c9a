"""Methods that put learned tokens before the input: prompt tuning, prefix tuning, P-tuning."""
from peft import CartridgeConfig, CPTConfig, PrefixTuningConfig, PromptEncoderConfig, PromptTuningConfig

from adapters import Recipe


def family(prefix, config):
    def recipe(name, model, task="CAUSAL_LM", tokens=4, tolerance=1e-5, **options):
        make = lambda: config(task_type=task, num_virtual_tokens=tokens, **options)  # noqa: E731
        return Recipe(f"{prefix}-{name}", model, make, merges=False, tolerance=tolerance)

    return recipe


prompt = family("prompt", PromptTuningConfig)
prefix = family("prefix", PrefixTuningConfig)
p_tuning = family("p-tuning", PromptEncoderConfig)
cartridge = family("cartridge", CartridgeConfig)


def cpt(name, model, kinds, ids=None, **options):
    """`kinds` are of the tokens of examples: around the input, the input, around the label, the label, each example counting on by four."""
    make = lambda: CPTConfig(task_type="CAUSAL_LM", cpt_token_ids=ids or list(range(7, 7 + len(kinds))), cpt_mask=[1] * len(kinds), cpt_tokens_type_mask=kinds, **options)  # noqa: E731
    return Recipe(f"cpt-{name}", model, make, merges=False)


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
    cpt("llama", "llama-gqa", [1, 2, 2, 3, 4, 4, 5, 6, 7, 8]),
    cpt("decay", "llama-gqa", [1, 2, 4, 5, 6, 8, 9, 10, 12], opt_weighted_loss_type="decay", opt_loss_decay_factor=0.6, opt_projection_epsilon=0.5),
    cpt("gpt2", "gpt2-lm-untied", [1, 2, 0, 3, 4]),
    cartridge("llama", "llama-gqa"),
    cartridge("opt", "opt-lm-untied", num_frozen_tokens=0),
    cartridge("frozen", "gpt2-lm-untied", num_frozen_tokens=3),
    cartridge("bert", "bert-class", "SEQ_CLS"),
    p_tuning("lstm", "llama-gqa", encoder_reparameterization_type="LSTM", encoder_hidden_size=7, encoder_num_layers=3),
]
