"""p(z | θ_k): one file per law, behind one small contract."""

from unem.core.laws.base import LAWS, Law, law_by_name, within_class_scatter
from unem.core.laws.directions import Directions
from unem.core.laws.dirichlet import Dirichlet
from unem.core.laws.gaussian import Gaussian
from unem.core.laws.simplex import DiagonalGaussian, DirichletOfQueries, KullbackLeibler, SimplexLaw, SquaredDistance

__all__ = [
    "LAWS",
    "DiagonalGaussian",
    "Directions",
    "Dirichlet",
    "DirichletOfQueries",
    "Gaussian",
    "KullbackLeibler",
    "Law",
    "SimplexLaw",
    "SquaredDistance",
    "law_by_name",
    "within_class_scatter",
]
