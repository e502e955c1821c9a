"""Every Recipe: one file per family of methods."""
from . import lora

RECIPES = [*lora.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
