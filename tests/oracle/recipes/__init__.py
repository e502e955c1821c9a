"""Every Recipe: one file per family of methods."""
from . import adalora
from . import adaption_prompt
from . import decoders
from . import families
from . import hra
from . import ia3
from . import ln_tuning
from . import lora
from . import lora_variants
from . import lycoris
from . import miss
from . import oft
from . import prompts
from . import road
from . import saved
from . import shared_banks
from . import structured
from . import subspaces
from . import tasks
from . import tokens
from . import weights

FAMILIES = [
    adalora,
    adaption_prompt,
    hra,
    ia3,
    ln_tuning,
    lora,
    lora_variants,
    lycoris,
    miss,
    oft,
    prompts,
    road,
    saved,
    shared_banks,
    structured,
    subspaces,
    tasks,
    tokens,
    weights,
    decoders,
    families,
]
RECIPES = [recipe for family in FAMILIES for recipe in family.RECIPES]
assert len({recipe.name for recipe in RECIPES}) == len(RECIPES), "two recipes have the same name"
