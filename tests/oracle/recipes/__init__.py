"""Every Recipe: one file per family of methods."""
from . import ia3, lora

RECIPES = [*lora.RECIPES, *ia3.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
