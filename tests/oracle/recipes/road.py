"""RoAd: the three variants."""
from peft import RoadConfig

from adapters import Recipe


def recipe(name, model, **options):
    return Recipe(f"road-{name}", model, lambda: RoadConfig(**options))


RECIPES = [
    *[recipe(variant[5:], "llama-gqa", variant=variant, group_size=8, target_modules=["q_proj", "k_proj", "down_proj"])
      for variant in ("road_1", "road_2", "road_4")],
    recipe("one-group", "llama-gqa", group_size=16, target_modules=["v_proj"]),
    recipe("vit", "vit-class", variant="road_2", group_size=10, target_modules=["o_proj", "fc2"], modules_to_save=["classifier"]),
    recipe("with-bias", "llama-mha-bias", variant="road_2", group_size=6, target_modules=["q_proj", "down_proj"]),
    recipe("random-start", "llama-gqa", variant="road_4", group_size=4, init_weights=False),
]
