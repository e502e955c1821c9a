"""One file per model family; each has a list CASES."""
import importlib
import pkgutil

CASES = [case for module in pkgutil.iter_modules(__path__) for case in importlib.import_module(f"{__name__}.{module.name}").CASES]
