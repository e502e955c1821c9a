"""Models and adapters by chance: a seed gives a small model of odd sizes and a configuration that PEFT may or may not take."""
import random
import re

import peft
import torch
import transformers as hf
from transformers.pytorch_utils import Conv1D

from adapters import Recipe
from harness import Case, image_batch, seed_of, text_batch
from recipes.adalora import without_penalty

LM = dict(pad_token_id=1, bos_token_id=0, eos_token_id=2)
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
GATED = {"llama": hf.LlamaForCausalLM, "mistral": hf.MistralForCausalLM, "qwen2": hf.Qwen2ForCausalLM, "qwen3": hf.Qwen3ForCausalLM,
         "gemma": hf.GemmaForCausalLM, "gemma2": hf.Gemma2ForCausalLM, "phi3": hf.Phi3ForCausalLM}


def draw_model(rng: random.Random, number: int) -> Case:
    family = rng.choice([*GATED, "llama-class", "opt", "gpt2", "gpt2-class", "neox", "bloom", "falcon", "bert-class", "bert-mlm", "bert-tokens", "roberta",
                         "distilbert", "vit", "dinov2", "resnet", "convnext", "t5"])
    heads, dim, layers = rng.choice([2, 3, 4]), rng.choice([4, 6, 8]), rng.choice([1, 2, 3])
    hidden, inner, vocab, tied = heads * dim, rng.choice([11, 18, 24, 35, 40]), rng.choice([53, 64, 97]), rng.random() < 0.5
    encoder = dict(vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
                   max_position_embeddings=40, pad_token_id=1, tie_word_embeddings=tied, num_labels=3, **NO_DROPOUT)
    labels, images = "lm", None
    if family in GATED or family == "llama-class":
        kv = rng.choice([d for d in (1, 2, 3, 4) if heads % d == 0])
        options = dict(vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
                       num_key_value_heads=kv, max_position_embeddings=64, tie_word_embeddings=tied, num_labels=3, **LM)
        if family in ("llama", "mistral", "qwen3", "gemma", "gemma2"):
            options["head_dim"] = rng.choice([dim, dim + 2])
        if family in ("llama", "llama-class"):
            options |= dict(attention_bias=rng.random() < 0.5, mlp_bias=rng.random() < 0.5)
        model = hf.LlamaForSequenceClassification if family == "llama-class" else GATED[family]
        labels = "class" if family == "llama-class" else "lm"
        config = model.config_class(**options)
    elif family == "opt":
        model, config = hf.OPTForCausalLM, hf.OPTConfig(vocab_size=vocab, hidden_size=hidden, ffn_dim=inner, num_hidden_layers=layers, num_attention_heads=heads,
                                                        max_position_embeddings=40, dropout=0.0, tie_word_embeddings=tied,
                                                        word_embed_proj_dim=rng.choice([hidden, 7]))
    elif family in ("gpt2", "gpt2-class"):
        model = hf.GPT2LMHeadModel if family == "gpt2" else hf.GPT2ForSequenceClassification
        labels = "lm" if family == "gpt2" else "class"
        config = hf.GPT2Config(vocab_size=vocab, n_embd=hidden, n_layer=layers, n_head=heads, n_positions=40, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                               bos_token_id=2, eos_token_id=2, pad_token_id=1, tie_word_embeddings=tied, num_labels=3)
    elif family == "neox":
        model, config = hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
                                                                num_attention_heads=heads, max_position_embeddings=40, tie_word_embeddings=tied,
                                                                hidden_dropout=0.0, attention_dropout=0.0, rope_parameters=dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=1.0), **LM)
    elif family == "bloom":
        model, config = hf.BloomForCausalLM, hf.BloomConfig(vocab_size=vocab, hidden_size=hidden, n_layer=layers, n_head=heads, tie_word_embeddings=tied, **LM)
    elif family == "falcon":
        model, config = hf.FalconForCausalLM, hf.FalconConfig(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                                                              max_position_embeddings=40, tie_word_embeddings=tied, bias=rng.random() < 0.5, **LM)
    elif family == "bert-class":
        model, labels, config = hf.BertForSequenceClassification, "class", hf.BertConfig(**encoder)
    elif family == "bert-mlm":
        model, config = hf.BertForMaskedLM, hf.BertConfig(**encoder)
    elif family == "bert-tokens":
        model, labels, config = hf.BertForTokenClassification, "tokens", hf.BertConfig(**encoder)
    elif family == "roberta":
        model, labels, config = hf.RobertaForSequenceClassification, "class", hf.RobertaConfig(**encoder)
    elif family == "distilbert":
        model, labels = hf.DistilBertForSequenceClassification, "class"
        config = hf.DistilBertConfig(vocab_size=vocab, dim=hidden, hidden_dim=inner, n_layers=layers, n_heads=heads, max_position_embeddings=40, pad_token_id=1,
                                     dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=3)
    elif family == "vit":
        images, model = dict(height=12, width=12), hf.ViTForImageClassification
        config = hf.ViTConfig(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads, image_size=12, patch_size=4, num_labels=3, **NO_DROPOUT)
    elif family == "dinov2":
        images, model = dict(height=12, width=12), hf.Dinov2ForImageClassification
        config = hf.Dinov2Config(hidden_size=hidden, mlp_ratio=2, num_hidden_layers=layers, num_attention_heads=heads, image_size=12, patch_size=4, num_labels=3)
    elif family == "resnet":
        images, model = dict(height=21, width=26), hf.ResNetForImageClassification
        config = hf.ResNetConfig(embedding_size=6, hidden_sizes=[8, 12], depths=[1, 2], layer_type=rng.choice(["basic", "bottleneck"]), num_labels=3)
    elif family == "convnext":
        images, model = dict(height=18, width=18), hf.ConvNextForImageClassification
        config = hf.ConvNextConfig(hidden_sizes=[6, 12], depths=[1, 2], num_stages=2, patch_size=3, layer_scale_init_value=0.7, num_labels=3)
    else:
        model = hf.T5ForConditionalGeneration
        config = hf.T5Config(vocab_size=vocab, d_model=hidden, d_kv=dim, d_ff=inner, num_layers=layers, num_decoder_layers=rng.choice([1, 2]), num_heads=heads,
                             relative_attention_num_buckets=8, relative_attention_max_distance=11, dropout_rate=0.0, pad_token_id=1, eos_token_id=2,
                             decoder_start_token_id=0, feed_forward_proj=rng.choice(["relu", "gated-gelu"]))
    if images:
        batch = lambda: image_batch(num_labels=3, **images)  # noqa: E731
    else:
        padding, seq = rng.choice(["none", "left", "right"]), rng.choice([5, 8])
        padding = "right" if labels == "class" and padding == "left" and family != "llama-class" else padding
        batch = lambda: text_batch(vocab=vocab, seq=seq, padding=padding, labels=labels, num_labels=3)  # noqa: E731
    return Case(f"random-{number}-{family}", lambda: model(config), {"one": batch})


# What each method may have of the fields that several have; the rest is drawn beside.
METHODS = ["LORA", "LORA", "LORA", "DORA", "ADALORA", "BOFT", "C3A", "FOURIERFT", "HIRA", "HRA", "IA3", "LN_TUNING", "LOHA", "LOKR", "MISS", "OFT", "RANDLORA",
           "ROAD", "SHIRA", "TRAINABLE_TOKENS", "VBLORA", "VERA", "PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING"]
# Those of seeds of their own: a longer list would make others of all that the seeds of METHODS have drawn.
LATER = ["DELORA", "BEFT", "GRALORA", "DEFT", "PVERA", "GLORA", "WAVEFT", "SUPERTUNING", "PEANUT", "LILY", "TINYLORA", "PSOFT", "UNILORA", "OSF", "FROD"]
# Of later seeds again.
LATEST = ["ADAMSS"]
# LoRA's variants and starts, and what knows more of a row.
VARIANTS = ["VARIANT", "VARIANT", "START", "POLY", "MULTITASK_PROMPT_TUNING", "CPT", "CARTRIDGE", "ADAPTION_PROMPT"]
CONFIGS = {"LORA": peft.LoraConfig, "DORA": peft.LoraConfig, "VARIANT": peft.LoraConfig, "START": peft.LoraConfig, "ADALORA": peft.AdaLoraConfig, "BOFT": peft.BOFTConfig, "C3A": peft.C3AConfig,
           "FOURIERFT": peft.FourierFTConfig, "HIRA": peft.HiraConfig, "HRA": peft.HRAConfig, "IA3": peft.IA3Config, "LN_TUNING": peft.LNTuningConfig,
           "LOHA": peft.LoHaConfig, "LOKR": peft.LoKrConfig, "MISS": peft.MissConfig, "OFT": peft.OFTConfig, "RANDLORA": peft.RandLoraConfig,
           "ROAD": peft.RoadConfig, "SHIRA": peft.ShiraConfig, "TRAINABLE_TOKENS": peft.TrainableTokensConfig, "VBLORA": peft.VBLoRAConfig,
           "VERA": peft.VeraConfig, "PROMPT_TUNING": peft.PromptTuningConfig, "PREFIX_TUNING": peft.PrefixTuningConfig, "P_TUNING": peft.PromptEncoderConfig,
           "DELORA": peft.DeloraConfig, "BEFT": peft.BeftConfig, "GRALORA": peft.GraloraConfig, "DEFT": peft.DeftConfig, "PVERA": peft.PveraConfig,
           "GLORA": peft.GloraConfig, "WAVEFT": peft.WaveFTConfig, "SUPERTUNING": peft.SupertuningConfig, "PEANUT": peft.PeanutConfig, "FROD": peft.FrodConfig, "OSF": peft.OSFConfig, "UNILORA": peft.UniLoraConfig, "PSOFT": peft.PsoftConfig, "TINYLORA": peft.TinyLoraConfig, "LILY": peft.LilyConfig,
           "POLY": peft.PolyConfig, "MULTITASK_PROMPT_TUNING": peft.MultitaskPromptTuningConfig, "CPT": peft.CPTConfig, "CARTRIDGE": peft.CartridgeConfig,
           "ADAPTION_PROMPT": peft.AdaptionPromptConfig, "ADAMSS": peft.AdamssConfig}
PROMPTS = ("PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING", "CPT", "CARTRIDGE")
NOT_MERGED = (*PROMPTS, "POLY", "ADAPTION_PROMPT")
TASKS = 3
LINEARS, CONVOLUTIONS, EMBEDDINGS = (torch.nn.Linear, Conv1D), (torch.nn.Conv2d,), (torch.nn.Embedding,)
KINDS = {"LORA": LINEARS + CONVOLUTIONS + EMBEDDINGS, "ADALORA": LINEARS + CONVOLUTIONS, "BOFT": LINEARS + CONVOLUTIONS, "HIRA": LINEARS + CONVOLUTIONS + EMBEDDINGS,
         "HRA": LINEARS + CONVOLUTIONS, "IA3": LINEARS + CONVOLUTIONS, "LOHA": LINEARS + CONVOLUTIONS, "LOKR": LINEARS + CONVOLUTIONS,
         "OFT": LINEARS + CONVOLUTIONS, "DORA": LINEARS + CONVOLUTIONS + EMBEDDINGS}
BIAS = {"LORA": "lora_only", "DORA": "lora_only", "ADALORA": "lora_only", "BOFT": "boft_only", "C3A": "c3a_only", "FOURIERFT": "fourier_only", "HRA": "hra_only", "MISS": "MiSS_only",
        "OFT": "oft_only", "RANDLORA": "randlora_only", "VBLORA": "vblora_only", "VERA": "vera_only",
        "DELORA": "delora_only", "GRALORA": "gralora_only", "DEFT": "deft_only", "PVERA": "pvera_only", "WAVEFT": "waveft_only",
        "TINYLORA": "tinylora_only", "UNILORA": "unilora_only", "FROD": "frod_only"}


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def ends(rng, path):
    """A name that ends a path: often its last part."""
    parts = path.split(".")
    count = rng.choice([1, 1, 1, 2, 3, len(parts)])
    return ".".join(parts[-count:])


def as_pattern(rng, paths):
    """A pattern that matches some of them."""
    path = rng.choice(paths)
    kind = rng.randrange(4)
    if kind == 0:
        return ".*\\." + re.escape(path.split(".")[-1]) if "." in path else re.escape(path)
    if kind == 1:
        return re.sub(r"\.\d+\.", r"\\.\\d+\\.", path).replace(r"\.", ".").replace(".", r"\.")
    if kind == 2:
        names = sorted({p.split(".")[-1] for p in paths})
        return r"(.*\.)?(" + "|".join(rng.sample(names, min(2, len(names)))) + ")"
    return ".*" + re.escape(path[len(path) // 2 :])


def targets_of(rng, method, model):
    """target_modules, exclude_modules and the blocks, with the layers they mean (roughly)."""
    kinds = KINDS.get(method, LINEARS)
    paths = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    if method == "LN_TUNING":
        paths = [name for name, module in model.named_modules() if "norm" in type(module).__name__.lower()]
    if not paths:
        return {}, []
    fields, kind = {}, rng.random()
    if kind < 0.15 and method != "LN_TUNING":
        fields["target_modules"] = "all-linear"
        meant = [name for name, module in model.named_modules() if isinstance(module, LINEARS)]
    elif kind < 0.35:
        pattern = as_pattern(rng, paths)
        fields["target_modules"] = pattern
        meant = [path for path in paths if re.fullmatch(pattern, path)]
    elif kind < 0.4 and method in ("LORA", "IA3", "LOHA", "OFT", "VERA"):
        return {}, paths
    else:
        names = sorted({ends(rng, rng.choice(paths)) for _ in range(rng.choice([1, 2, 3]))})
        fields["target_modules"] = names
        meant = [path for path in paths if any(path == name or path.endswith("." + name) for name in names)]
    known = CONFIGS[method].__dataclass_fields__
    if "exclude_modules" in known and rng.random() < 0.2:
        fields["exclude_modules"] = as_pattern(rng, paths) if rng.random() < 0.5 else [ends(rng, rng.choice(paths))]
    if "layers_to_transform" in known and rng.random() < 0.2 and isinstance(fields["target_modules"], list):
        numbers = sorted({int(n) for path in meant for n in re.findall(r"\.(\d+)\.", path)})
        if numbers:
            fields["layers_to_transform"] = rng.choice([rng.choice(numbers), rng.sample(numbers, min(2, len(numbers)))])
            if rng.random() < 0.5:
                names = sorted({n for path in meant for n in re.findall(r"([^.]+)\.\d+\.", path)})
                fields["layers_pattern"] = rng.choice([rng.choice(names), names])
    return fields, meant


def sizes_of(model, meant):
    """Greatest common divisor of the inputs, and of the outputs."""
    inputs = outputs = 0
    modules = dict(model.named_modules())
    for path in meant:
        weight = modules[path].weight
        if weight is None or weight.dim() < 2:
            continue
        a, b = (weight.shape[1], weight.shape[0]) if not isinstance(modules[path], Conv1D) else weight.shape
        inputs, outputs = torch.gcd(torch.tensor(inputs), torch.tensor(a)).item(), torch.gcd(torch.tensor(outputs), torch.tensor(b)).item()
    return max(inputs, 1), max(outputs, 1)


def patterns(rng, meant, values):
    if not meant or rng.random() < 0.7:
        return {}
    return {rng.choice([ends(rng, path), as_pattern(rng, meant), "^" + path]): rng.choice(values) for path in rng.sample(meant, min(2, len(meant)))}


def one_pattern(rng, meant, values):
    """Of two that match, PEFT takes the first; its file has them sorted, so that it may not load what it saved."""
    return dict(list(patterns(rng, meant, values).items())[:1])


def draw_config(rng: random.Random, model, case: Case, method: str):
    """The class of the configuration, and its fields."""
    flip = lambda share=0.3: rng.random() < share  # noqa: E731
    own, fields, meant = CONFIGS[method], {}, []
    task = {"lm": "CAUSAL_LM", "t5": "SEQ_2_SEQ_LM"}.get("t5" if "t5" in case.name else "lm" if type(model).__name__.endswith(("CausalLM", "LMHeadModel")) else "")
    task = task or ("TOKEN_CLS" if "Token" in type(model).__name__ else "SEQ_CLS" if "SequenceClass" in type(model).__name__ else None)
    vocab = getattr(model.config, "vocab_size", 0)
    if method == "CPT":
        kinds = [4 * example + kind for example in range(rng.choice([1, 2, 3])) for kind in rng.choice([[1, 2, 3, 4], [1, 2, 2, 4], [2, 4, 4]])]
        return own, dict(task_type=task, cpt_token_ids=[rng.randrange(max(vocab, 9)) for _ in kinds], cpt_mask=[1] * len(kinds), cpt_tokens_type_mask=kinds,
                         opt_weighted_loss_type=rng.choice(["none", "decay"]), opt_loss_decay_factor=rng.choice([1.0, 0.7]), opt_projection_epsilon=rng.choice([0.1, 1.0]))
    if method == "ADAPTION_PROMPT":
        return own, dict(task_type=task, adapter_len=rng.choice([1, 4]), adapter_layers=rng.choice([1, 2]))
    if method in PROMPTS:
        fields = dict(task_type=task, num_virtual_tokens=rng.choice([1, 3, 5]))
        if method == "CARTRIDGE":
            fields["num_frozen_tokens"] = rng.choice([0, 1, 2])
        if method in ("PREFIX_TUNING", "CARTRIDGE") and getattr(model.config, "multi_query", False) and not model.config.new_decoder_architecture:
            # PEFT must be told that Falcon's queries have one key in common, and fails where it is not; graft looks for itself.
            fields |= dict(num_attention_heads=1, token_dim=model.config.hidden_size // model.config.num_attention_heads)
        if method == "MULTITASK_PROMPT_TUNING":
            fields |= dict(num_tasks=TASKS, num_ranks=rng.choice([1, 2]))
        if method == "PREFIX_TUNING":
            fields |= rng.choice([{}, dict(prefix_projection=True, encoder_hidden_size=rng.choice([5, 9]))])
        if method == "P_TUNING":
            fields |= rng.choice([{}, dict(encoder_hidden_size=7), dict(encoder_reparameterization_type="LSTM", encoder_num_layers=rng.choice([1, 2]))])
        return own, fields
    if task and flip(0.6):
        fields["task_type"] = task
    if method == "TRAINABLE_TOKENS":
        return own, {**fields, "token_indices": rng.sample(range(max(vocab, 9)), 7), "init_weights": rng.choice([True, False])}
    targets, meant = targets_of(rng, method, model)
    fields |= targets
    known = own.__dataclass_fields__
    inputs, outputs = sizes_of(model, meant)
    rank = rng.choice([1, 2, 3, 4, 6, 9])
    if "r" in known and method not in ("OFT",):
        fields["r"] = rank
    if method in BIAS and flip(0.25):
        fields["bias"] = rng.choice(["all", BIAS[method]])
    if "fan_in_fan_out" in known and flip(0.3):
        fields["fan_in_fan_out"] = True
    if "modules_to_save" in known and flip(0.2):
        heads = [name for name in ("lm_head", "score", "classifier", "embed_out", "qa_outputs") if name in dict(model.named_children())]
        others = [ends(rng, name) for name, module in model.named_modules() if isinstance(module, (torch.nn.Linear, torch.nn.LayerNorm, torch.nn.Embedding, torch.nn.BatchNorm2d))]
        fields["modules_to_save"] = rng.sample(heads, min(1, len(heads))) if flip(0.6) and heads else [rng.choice(others)]
    for name in ("lora_dropout", "boft_dropout", "miss_dropout", "vera_dropout", "randlora_dropout", "hira_dropout", "vblora_dropout", "module_dropout", "rank_dropout", "gralora_dropout",
                 "deft_dropout", "pvera_dropout", "tinylora_dropout", "psoft_dropout", "unilora_dropout", "frod_dropout"):
        if name in known and flip(0.15):
            fields[name] = 0.25
    if method in ("LORA", "DORA"):
        fields |= dict(lora_alpha=rng.choice([1, 5, 16, 0.5]), use_rslora=flip(), rank_pattern=patterns(rng, meant, [1, 2, 5]), alpha_pattern=patterns(rng, meant, [1, 3, 7.5]))
        if method == "DORA":
            fields["use_dora"] = True
        if flip():
            fields["init_lora_weights"] = rng.choice([False, "gaussian", "orthogonal", "pissa", "olora"])
        elif flip(0.15):
            fields["lora_bias"] = True
        if vocab and flip(0.15):
            embeddings = [name.split(".")[-1] for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding) and module.num_embeddings > 9]
            tokens = rng.sample(range(9), 4)
            fields["trainable_token_indices"] = rng.choice([tokens, {rng.choice(embeddings): tokens}])
        if flip(0.1):
            fields["ensure_weight_tying"] = True
    elif method == "START":
        fields |= dict(init_lora_weights=rng.choice(["mica", "eva", "lora_ga"]), lora_alpha=rng.choice([1, 5]), rank_pattern=patterns(rng, meant, [1, 2]))
    elif method == "VARIANT":
        some = sorted({path.split(".")[-1] for path in meant})[:1]
        fields |= rng.choice([
            dict(kasa_config={}), dict(velora_config=dict(num_groups=rng.choice([3, 64]))), dict(monteclora_config=dict(num_samples=2, buffer_size=1)),
            dict(use_bdlora=dict(nblocks=rng.choice([1, 2]), match_strict=False, target_modules_bd_a=some)),
        ])  # fmt: skip
        if fields.get("task_type") == "CAUSAL_LM" and flip():
            fields |= dict(alora_invocation_tokens=[rng.randrange(3, vocab)], kasa_config=None, velora_config=None, monteclora_config=None, use_bdlora=None)
    elif method == "POLY":
        fields |= dict(task_type=task, n_tasks=TASKS, n_skills=rng.choice([1, 3]), n_splits=rng.choice([1, 2]), init_weights=flip(0.5))
    elif method == "ADALORA":
        fields.pop("r")
        fields |= dict(init_r=rank, target_r=1, total_step=10, lora_alpha=rng.choice([1, 5, 16]), orth_reg_weight=rng.choice([0.5, 0.0, 1.5]))
    elif method in ("LOHA", "LOKR"):
        fields |= dict(alpha=rng.choice([1, 5, 16]), rank_pattern=patterns(rng, meant, [1, 2, 5]), alpha_pattern=patterns(rng, meant, [1, 3]), use_effective_conv2d=flip(0.5),
                       init_weights=rng.choice([True, False]))
        if method == "LOKR":
            fields |= dict(decompose_both=flip(0.5), decompose_factor=rng.choice([-1, -1, 2, 4, 5, 8]), init_weights=rng.choice([True, False, "lycoris"]))
    elif method == "OFT":
        size = rng.choice(divisors(inputs)) if flip(0.8) else rng.choice([2, 3, 4])
        fields |= dict(oft_block_size=size) if flip(0.7) else dict(oft_block_size=0, r=max(1, inputs // size))
        fields |= dict(coft=flip(), eps=rng.choice([6e-5, 0.1, 0.5]), block_share=flip(), use_cayley_neumann=flip(0.6), num_cayley_neumann_terms=rng.choice([2, 3, 5, 6]),
                       init_weights=rng.choice([True, False]))
    elif method == "BOFT":
        size = rng.choice(divisors(inputs))
        fields |= dict(boft_block_size=size) if flip(0.7) else dict(boft_block_size=0, boft_block_num=max(1, inputs // size))
        fields |= dict(boft_n_butterfly_factor=rng.choice([1, 1, 2, 3]), init_weights=rng.choice([True, False]))
    elif method == "C3A":
        common = [d for d in divisors(inputs) if outputs % d == 0]
        fields |= dict(block_size=rng.choice(common), block_size_pattern=patterns(rng, meant, common), init_weights=rng.choice([True, False, "gaussian", "kaiming_uniform", "xavier_uniform"]))
    elif method == "FOURIERFT":
        fields |= dict(n_frequency=rng.choice([3, 20, 40]), scaling=rng.choice([5.0, 20.0]), random_loc_seed=rng.choice([777, 1]), n_frequency_pattern=patterns(rng, meant, [1, 9]),
                       init_weights=rng.choice([True, False]))
    elif method == "HIRA":
        fields |= dict(init_weights=rng.choice([True, False, "gaussian"]), rank_pattern=patterns(rng, meant, [1, 3]))
    elif method == "HRA":
        fields |= dict(r=rng.choice([2, 4, 6, 3]), apply_GS=flip(0.5), init_weights=rng.choice([True, False]))
    elif method == "IA3":
        names = fields.get("target_modules")
        if names is not None:
            fields["feedforward_modules"] = rng.choice([[], rng.sample(names, 1) if isinstance(names, list) else as_pattern(rng, meant or ["none"])])
        fields["init_ia3_weights"] = rng.choice([True, False])
    elif method == "MISS":
        fields |= dict(init_weights=rng.choice([True, False, "bat", "mini"]), mini_r=rng.choice(divisors(outputs)))
    elif method == "RANDLORA":
        fields |= dict(randlora_alpha=rng.choice([5, 20]), projection_prng_key=rng.choice([0, 3]), save_projection=flip(0.7), sparse=flip(0.2), init_weights=rng.choice([True, False]))
    elif method == "ROAD":
        fields |= dict(variant=rng.choice(["road_1", "road_2", "road_4"]), group_size=rng.choice([d for d in divisors(outputs) if d % 2 == 0] or [2]), init_weights=rng.choice([True, False]))
    elif method == "SHIRA":
        fields |= dict(r=rng.choice([1, 2]), random_seed=rng.choice([None, 5]), init_weights=rng.choice([True, False]))
    elif method == "VBLORA":
        common = [d for d in divisors(inputs) if outputs % d == 0]
        fields |= dict(num_vectors=rng.choice([5, 300]), vector_length=rng.choice(common), topk=rng.choice([1, 2, 3]), save_only_topk_weights=flip(0.2))
    elif method == "DELORA":
        fields |= dict(delora_lambda=rng.choice([3, 15]), rank_pattern=one_pattern(rng, meant, [1, 2, 5]), lambda_pattern=one_pattern(rng, meant, [2, 7.5]),
                       init_weights=rng.choice([True, False]))
    elif method in ("BEFT", "PEANUT"):
        fields |= dict(init_weights=rng.choice([True, False]))
        if method == "PEANUT":
            fields |= dict(depth=rng.choice([0, 1, 3]), act_fn=rng.choice(["relu", "gelu", "tanh"]), scaling=rng.choice([1.0, 0.3]))
    elif method == "GRALORA":
        blocks = rng.choice([d for d in divisors(inputs) if outputs % d == 0])
        fields |= dict(r=blocks * rng.choice([1, 2]), gralora_k=blocks, hybrid_r=rng.choice([0, 0, 2]), alpha=rng.choice([3, 16]), init_weights=rng.choice([True, False]))
    elif method == "DEFT":
        fields |= dict(decomposition_method=rng.choice(["relu", "qr"]), alpha=rng.choice([None, 5]), para=flip(0.2), init_weights=rng.choice([True, False]))
    elif method == "PVERA":
        fields |= dict(projection_prng_key=rng.choice([0, 3]), save_projection=flip(0.7), d_initial=rng.choice([0.1, 0.4]), init_weights=rng.choice([True, False]))
    elif method == "GLORA":
        fields |= dict(config_A_B=rng.choice(["lora", "vector", "constant", "none"]), config_C=rng.choice(["lora", "vector", "none"]),
                       config_D_E=rng.choice(["vector", "constant", "none"]), init_weights=rng.choice([True, False]))
    elif method == "WAVEFT":
        fields |= dict(n_frequency=rng.choice([3, 20, 40]), wavelet_family=rng.choice(["db1", "db3", "sym5", "coif2"]), use_idwt=flip(0.8), random_loc_seed=rng.choice([777, 1]),
                       n_frequency_pattern=one_pattern(rng, meant, [1, 9]), proportional_parameters=flip(), init_weights=rng.choice([True, False]))
    elif method == "SUPERTUNING":
        fields.pop("r")
        fields |= dict(sparsity=rng.choice([0.5, 0.9]), select_top=flip(0.5), save_precomputed_indices=flip(0.7), init_weights=rng.choice([True, False]))
        if flip(0.5):
            fields |= dict(r=rank, lora_alpha=rng.choice([None, 3.0]))
    elif method == "LILY":
        if isinstance(fields.get("target_modules"), list):  # of two names that end a path PEFT takes either
            fields["target_modules"] = fields["target_modules"][:1]
        fields |= dict(stride_A=rng.choice([1, 2]), num_B=rng.choice([2, 3]), scaling=rng.choice([1.0, 0.3]), init_weights=rng.choice([True, False]))
    elif method == "TINYLORA":
        fields |= dict(u=rng.choice([1, 6]), weight_tying=rng.choice([0.0, 0.4, 1.0]), save_projection=flip(0.7), init_weights=rng.choice([True, "uniform"]))
    elif method == "PSOFT":
        fields |= dict(psoft_alpha=rng.choice([3, 16]), ab_svd_init=rng.choice(["psoft_init", "pissa_init"]), psoft_svd=rng.choice(["full", "lowrank"]), psoft_orth=flip(0.7),
                       psoft_mag_a=flip(0.5), psoft_mag_b=flip(0.5), use_cayley_neumann=flip(), cayley_neumann_eps=rng.choice([None, 0.5]), init_weights=rng.choice([True, False]))
    elif method == "UNILORA":
        fields |= dict(theta_d_length=rng.choice([5, 90]), proj_seed=rng.choice([42, 1]), save_indices=flip(), init_weights=rng.choice([True, False]))
    elif method == "OSF":
        fields |= dict(effective_rank=rng.choice([None, 2, 0.7]), rank_pattern=one_pattern(rng, meant, [1, 0.5]), init_weights=rng.choice([True, False]))
    elif method == "FROD":
        fields |= dict(sparse_rate=rng.choice([0.0, 0.05]), projection_prng_key=rng.choice([0, 3]), save_projection=flip(0.7), progressbar=False, init_weights=rng.choice([True, False]))
    elif method == "ADAMSS":
        fields |= dict(r=rng.choice([3, 5]), num_subspaces=rng.choice([1, 3]), subspace_rank=rng.choice([1, 3]), use_dynamic_rank=flip(), random_seed=rng.choice([0, 3]),
                       init_weights=rng.choice(["orthogonal", None]))
    elif method == "VERA":
        fields |= dict(projection_prng_key=rng.choice([0, 3]), save_projection=flip(0.7), d_initial=rng.choice([0.1, 0.4]), init_weights=rng.choice([True, False]))
    return own, fields


def draw(seed: int, adapters: int, methods=METHODS) -> tuple[Case, list[Recipe]]:
    """A model, and adapters for it."""
    rng = random.Random(seed_of(f"adapter {seed}"))
    case = draw_model(rng, seed)
    torch.manual_seed(seed)
    model, recipes = case.make(), []
    for number in range(adapters):
        method = rng.choice(methods)
        own, fields = draw_config(rng, model, case, method)
        noise = {"RANDLORA": 0.02, "LN_TUNING": 0.05}.get(method, 0.1)
        recipe = Recipe(f"{case.name}-{number}", case.name, lambda own=own, fields=fields: own(**fields), noise=noise, trains=not fields.get("save_only_topk_weights"))
        recipe.method, recipe.fields, recipe.peft_type = method, fields, "LORA" if method in ("DORA", "VARIANT", "START") else method
        # BEFT: not where a layer has no bias
        recipe.merges = method not in (*NOT_MERGED, "LILY", "BEFT") and not fields.get("alora_invocation_tokens")
        if method in ("POLY", "MULTITASK_PROMPT_TUNING"):
            recipe.inputs = lambda batch: {**batch, "task_ids": torch.arange(len(next(iter(batch.values())))) % TASKS}
        if method == "ADALORA":
            recipe.frozen = without_penalty
        recipes.append(recipe)
    return case, recipes
