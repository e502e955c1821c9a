"""Every Recipe: one file per family of methods."""
from . import adalora
from . import decoders
from . import families
from . import hra
from . import ia3
from . import ln_tuning
from . import lora
from . import lycoris
from . import miss
from . import oft
from . import prompts
from . import road
from . import saved
from . import shared_banks
from . import structured
from . import subspaces
from . import tokens
from . import weights

FAMILIES = [
    adalora,
    hra,
    ia3,
    ln_tuning,
    lora,
    lycoris,
    miss,
    oft,
    prompts,
    road,
    saved,
    shared_banks,
    structured,
    subspaces,
    tokens,
    weights,
    decoders,
    families,
]
RECIPES = [recipe for family in FAMILIES for recipe in family.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
