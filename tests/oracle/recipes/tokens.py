"""Trainable tokens: as a method and beside LoRA, on embeddings alone and tied to the output layer."""
from peft import LoraConfig, TrainableTokensConfig

from adapters import Recipe


def tokens(name, model, **options):
    return Recipe(f"tokens-{name}", model, lambda: TrainableTokensConfig(**options))


def lora(name, model, full=False, **options):
    return Recipe(f"tokens-lora-{name}", model, lambda: LoraConfig(r=3, **options), full=full)


FEW = [5, 1, 17, 130, 40, 88]
MANY = list(range(3, 131, 2))
Q = dict(target_modules=["q_proj"])
RECIPES = [
    tokens("llama", "llama-gqa", token_indices=MANY),
    tokens("llama-tied", "llama-tied", token_indices=MANY),
    tokens("opt-tied", "opt-lm-tied", token_indices=FEW + [2, 99]),
    tokens("gpt2-tied", "gpt2-lm-tied", token_indices=FEW),
    tokens("bert", "bert-class", token_indices=MANY),
    tokens("bert-task", "bert-class", token_indices=MANY, task_type="SEQ_CLS"),  # PEFT trains no head along
    tokens("head-too", "llama-gqa", token_indices=FEW, target_modules=["embed_tokens", "lm_head"]),
    tokens("random-start", "llama-gqa", token_indices=FEW, init_weights=False),
    lora("list", "llama-gqa", trainable_token_indices=MANY, **Q),
    lora("tied", "llama-tied", trainable_token_indices=MANY, **Q),
    lora("tying-ensured", "llama-tied", trainable_token_indices=FEW, ensure_weight_tying=True, **Q),
    lora("tying-for-nothing", "llama-gqa", ensure_weight_tying=True, **Q),
    lora("by-name", "gpt2-lm-untied", trainable_token_indices={"wte": FEW, "wpe": [0, 3, 5]}, target_modules=["c_attn"], fan_in_fan_out=True),
    lora("same-tokens-tied", "llama-tied", trainable_token_indices={"embed_tokens": FEW, "lm_head": FEW}, **Q),
    lora("other-tokens-tied", "llama-tied", trainable_token_indices={"embed_tokens": FEW, "lm_head": [3, 5]}, **Q),
    # LoRA on the very layer that the tokens are tied to: it works on the weight with the new rows. Rows were put in last once.
    lora("head-tied", "llama-tied", trainable_token_indices=FEW, target_modules=["q_proj", "lm_head"]),
    lora("head-tied-mistral", "mistral-mha-tied", trainable_token_indices={"embed_tokens": FEW}, target_modules=["lm_head"], full=True),
    lora("head-tied-gpt2", "gpt2-lm-tied", trainable_token_indices={"wte": FEW}, target_modules=["c_attn", "lm_head"], fan_in_fan_out=True),
    lora("head-tied-t5", "t5-relu", trainable_token_indices={"shared": FEW}, target_modules=["q", "lm_head"]),
    # PEFT leaves the bias out of such a layer, and names it by all that is around it.
    lora("head-tied-bert", "bert-mlm-tied", trainable_token_indices={"word_embeddings": FEW}, target_modules=["query", "decoder"]),
    lora("head-tied-bert-bias", "bert-mlm-tied", trainable_token_indices=FEW, target_modules=["query", "decoder"], bias="lora_only"),
    lora("tied-bert-biases", "bert-mlm-tied", trainable_token_indices=FEW, target_modules=["query"], bias="all"),
    # The input embedding by itself, whatever its name is.
    lora("list-distilbert", "distilbert-mlm-tied", trainable_token_indices=FEW, target_modules=["q_lin"]),
    lora("list-roberta", "roberta-mlm-tied", trainable_token_indices=FEW, target_modules=["query"]),
    lora("list-t5", "t5-gated", trainable_token_indices=FEW, target_modules=["q"]),
    tokens("t5", "t5-relu", token_indices=FEW),
]
