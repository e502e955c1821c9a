"""Every Recipe: one file per family of methods."""
from . import ia3, ln_tuning, lora, lycoris, oft

RECIPES = [*lora.RECIPES, *ia3.RECIPES, *ln_tuning.RECIPES, *lycoris.RECIPES, *oft.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
