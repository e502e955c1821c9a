"""Which rows of many `make test` runs."""
import pytest


def some_of(values, each):
    """For parametrize: the first of so many, and so on. The others are of `make test-full`, as are those that already were."""
    return [value if place % each == 0 or hasattr(value, "marks") else pytest.param(value, marks=pytest.mark.full) for place, value in enumerate(values)]
