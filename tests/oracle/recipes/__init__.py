"""Every Recipe: one file per family of methods."""
from . import hra
from . import ia3
from . import ln_tuning
from . import lora
from . import lycoris
from . import miss
from . import prompts
from . import road
from . import shared_banks

FAMILIES = [
    hra,
    ia3,
    ln_tuning,
    lora,
    lycoris,
    miss,
    prompts,
    road,
    shared_banks,
]
RECIPES = [recipe for family in FAMILIES for recipe in family.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
