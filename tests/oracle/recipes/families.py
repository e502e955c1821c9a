"""An adding, a rotating and a scaling method on the families of models that the methods' own files do not have."""
from peft import HRAConfig, IA3Config, LoraConfig, OFTConfig

from adapters import Recipe


def recipe(method, config, model, full=False, **options):
    family = model.split("-")[0]
    return Recipe(f"{method}-{family}", model, lambda: config(**options), full=full)


def lora(model, **options):
    return recipe("lora", LoraConfig, model, r=3, **options)


def oft(model, **options):
    return recipe("oft", OFTConfig, model, **options)


def ia3(model, **options):
    return recipe("ia3", IA3Config, model, **options)


RECIPES = [
    # "all-linear" once went on GPT-2's output layer, too.
    Recipe("lora-gpt2-all-linear", "gpt2-lm-untied", lambda: LoraConfig(r=2, target_modules="all-linear", fan_in_fan_out=True)),
    # A classifier of tokens: its head is trained along.
    lora("roberta-tokens", task_type="TOKEN_CLS"),
    ia3("roberta-class", task_type="SEQ_CLS"),
    oft("roberta-mlm-tied", oft_block_size=5, full=True),
    lora("distilbert-mlm-tied", target_modules="all-linear"),
    ia3("distilbert-class", target_modules=["k_lin", "v_lin", "lin2"], feedforward_modules=["lin2"], full=True),
    oft("distilbert-tokens", oft_block_size=9, target_modules=["q_lin", "out_lin"], task_type="TOKEN_CLS", full=True),
    lora("dinov2-class", target_modules=["q_proj", "v_proj", "fc1", "projection"], modules_to_save=["classifier"]),
    ia3("dinov2-class", target_modules=["k_proj", "fc2"], feedforward_modules=["fc2"], full=True),
    oft("dinov2-gated", oft_block_size=10, target_modules=["q_proj", "gate_proj"], full=True),
    lora("convnext-class", target_modules=["pwconv1", "patch_embeddings"]),
    # Convolutions in groups, too.
    ia3("convnext-class", target_modules=["dwconv", "pwconv2"], feedforward_modules=["pwconv2"]),
    lora("t5-relu", task_type="SEQ_2_SEQ_LM"),
    ia3("t5-gated", task_type="SEQ_2_SEQ_LM"),
    oft("t5-relu", oft_block_size=11, target_modules=["q", "v", "wi"], full=True),
    # PEFT's OFT cannot take these layers' inputs.
    Recipe("hra-convnext", "convnext-class", lambda: HRAConfig(r=2, target_modules=["pwconv1"])),
]
