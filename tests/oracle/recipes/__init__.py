"""Every Recipe: one file per family of methods."""
from . import lora, shared_banks, structured

RECIPES = [*lora.RECIPES, *shared_banks.RECIPES, *structured.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
