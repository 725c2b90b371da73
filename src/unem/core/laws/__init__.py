"""p(z | θ_k): one file per law, behind one small contract."""

from unem.core.laws.base import ClassModel
from unem.core.laws.directions import GaussianPlus
from unem.core.laws.dirichlet import Dirichlet
from unem.core.laws.gaussian import Gaussian
from unem.errors import InputError

__all__ = ["ClassModel", "Dirichlet", "Gaussian", "GaussianPlus", "by_name"]


def by_name(name: str) -> ClassModel:
    """The law with its default settings.

    Example:
        >>> by_name("gaussian")
        Gaussian(proportion_floor=1e-06, form='auto')
    """
    laws: dict[str, type[ClassModel]] = {c.name: c for c in (Gaussian, Dirichlet, GaussianPlus)}
    if name not in laws:
        raise InputError(f"law: expected one of {', '.join(laws)}, got {name!r}")
    return laws[name]()
