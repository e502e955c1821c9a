"""Every Recipe: one file per family of methods."""
from . import adalora, hra, lora, miss, road, saved, tokens

RECIPES = [*lora.RECIPES, *hra.RECIPES, *miss.RECIPES, *road.RECIPES, *adalora.RECIPES, *tokens.RECIPES, *saved.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
