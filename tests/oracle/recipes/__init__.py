"""Every Recipe: one file per family of methods."""
from . import ia3, ln_tuning, lora, lycoris

RECIPES = [*lora.RECIPES, *ia3.RECIPES, *ln_tuning.RECIPES, *lycoris.RECIPES]
from . import lora, shared_banks

RECIPES = [*lora.RECIPES, *shared_banks.RECIPES]
from . import hra, lora, miss, road

RECIPES = [*lora.RECIPES, *hra.RECIPES, *miss.RECIPES, *road.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
