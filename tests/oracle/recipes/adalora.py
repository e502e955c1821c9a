"""AdaLoRA: its three kinds of layers, the penalty in its loss, ranks that training took away."""
from peft import AdaLoraConfig

from adapters import Recipe


def recipe(name, model, prepare=lambda model: None, total_step=10, **options):
    return Recipe(f"adalora-{name}", model, lambda: AdaLoraConfig(total_step=total_step, **options), prepare=prepare, frozen=without_penalty)


def without_penalty(model):
    """PEFT computes no loss with a frozen AdaLoRA: it looks for the trainable one's penalty."""
    model.base_model.trainable_adapter_name = "default"
    model.peft_config["default"].orth_reg_weight = 0.0


def take_away(model):
    """As after training: layers with all ranks, with some, with none."""
    config = model.peft_config["default"]
    pattern = {}
    for number, (name, parameter) in enumerate((n, p) for n, p in model.base_model.model.named_parameters() if ".lora_E." in n):
        kept = [(number + rank) % 3 > 0 if number % 3 else True for rank in range(len(parameter))]
        pattern[name] = [False] * len(kept) if number == 2 else kept
    config.rank_pattern = pattern


LM = dict(task_type="CAUSAL_LM")
RECIPES = [
    recipe("llama", "llama-gqa", init_r=4, lora_alpha=9, target_modules="all-linear", **LM),
    recipe("defaults", "opt-lm-untied", **LM),
    recipe("gpt2", "gpt2-lm-untied", init_r=5, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, **LM),
    recipe("bert", "bert-class", init_r=3, target_modules=["query", "dense"], task_type="SEQ_CLS"),
    recipe("resnet", "resnet-bottleneck", init_r=3, target_modules=["convolution"]),
    recipe("no-task", "llama-gqa", init_r=3, target_modules=["q_proj"]),
    recipe("penalty", "llama-gqa", init_r=3, orth_reg_weight=2.5, target_modules=["q_proj"], **LM),
    recipe("no-penalty", "llama-gqa", init_r=3, orth_reg_weight=0.0, target_modules=["q_proj"], **LM),
    recipe("alpha-0", "llama-gqa", init_r=3, lora_alpha=0, target_modules=["q_proj"], **LM),
    recipe("random-start", "llama-gqa", init_r=3, init_lora_weights=False, target_modules=["q_proj"], **LM),
    recipe("bias-only", "opt-lm-untied", init_r=2, target_modules=["q_proj"], bias="lora_only", **LM),
    recipe("fewer-ranks", "llama-gqa", take_away, init_r=6, target_modules=["q_proj", "v_proj"], **LM),
    recipe("fewer-ranks-conv", "resnet-bottleneck", take_away, init_r=4, target_modules=["convolution"]),
]

# Trained by test_adalora.py; the phases before, between and after the budget falls are all there.
BUDGETS = [
    recipe("budget-llama", "llama-gqa", init_r=6, target_r=2, tinit=2, tfinal=3, deltaT=2, total_step=12, target_modules=["q_proj", "v_proj", "up_proj"], **LM),
    recipe("budget-every-step", "opt-lm-untied", init_r=4, target_r=1, tinit=0, tfinal=2, total_step=7, beta1=0.7, beta2=0.6, **LM),
    recipe("budget-conv", "resnet-bottleneck", init_r=4, target_r=2, tinit=1, tfinal=1, total_step=6, target_modules=["convolution"]),
]
