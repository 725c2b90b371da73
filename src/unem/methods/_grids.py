"""What is worth tuning of each method: a small grid, declared before anything is measured; the same care for all.

A method that is not listed has nothing that published comparisons tune, and is used with its defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from unem.methods._registry import method_info

__all__ = ["GRIDS", "grid_points"]

_BALANCES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_SCALES = (0.3, 1.0, 3.0, 10.0)  # features of length 8 as well as of length 1
_LARGE_BALANCES = (1.0, 3.0, 10.0, 30.0, 100.0)

GRIDS: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "alpha-am": {"marginal_alpha": (2.0, 5.0, 7.0)},
    "alpha-tim": {"marginal_alpha": (2.0, 4.0, 7.0), "conditional_alpha": (2.0, 5.0)},
    "baseline": {"steps": (0, 100, 300)},
    "bd-cspn": {"temperature": (10.0, 30.0, 50.0)},
    "em-dirichlet": {"class_balance": _LARGE_BALANCES},
    "em-gaussian": {"class_balance": _BALANCES, "feature_scale": _SCALES},
    "gem-dirichlet": {"class_balance": _LARGE_BALANCES, "temperature": (0.5, 1.0, 2.0, 4.0, 8.0)},
    "gem-gaussian": {"class_balance": _BALANCES, "temperature": (1.0, 2.0, 4.0), "feature_scale": (1.0, 10.0)},
    "hard-em-dirichlet": {"class_balance": _LARGE_BALANCES},
    "label-propagation": {"alpha": (0.5, 0.8, 0.9, 0.99), "neighbours": (5, 10, 20)},
    "laplacian-shot": {"smoothness": (0.1, 0.3, 0.7, 1.5)},
    "logistic": {"C": (0.1, 1.0, 10.0, 100.0)},
    "lp++": {"text_weight": (50.0, 100.0, 250.0)},
    "lr-ici": {"rounds": (1, 3)},
    "paddle": {"class_balance": _BALANCES},
    "pt-map": {"step": (0.02, 0.1, 0.2, 0.4)},
    "soft-kmeans": {"feature_scale": _SCALES},
    "stata": {"anchor": (0.1, 1.0, 10.0)},
    "tim-adm": {"marginal": (0.1, 0.3, 1.0)},
    "tim-gd": {"marginal": (0.1, 0.3, 1.0)},
    "tip-adapter": {"residual_ratio": (0.5, 1.0, 3.0, 10.0), "sharpness": (1.0, 5.5, 10.0)},
    "tip-adapter-f": {"residual_ratio": (1.0, 3.0), "learning_rate": (1e-3, 1e-2)},
    "transclip": {"text_weight": (0.5, 1.0), "neighbours": (3, 10)},
    "zlap": {"damping": (0.1, 0.3, 0.6), "use_support": (False, True)},
}


def grid_points(name: str) -> Iterator[dict[str, Any]]:
    """The settings to try for a method, its defaults alone where nothing is to be tuned.

    Example:
        >>> [p["class_balance"] for p in grid_points("paddle")]
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
        >>> list(grid_points("prototypes"))
        [{}]
    """
    method_info(name)
    grid = GRIDS.get(name, {})
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))
