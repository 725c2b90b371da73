"""Every method that can be compared, one file each, behind one contract and one registry."""

from unem.methods import (  # noqa: F401
    coop,
    em_dirichlet,
    em_gaussian,
    learned,
    lp_plus_plus,
    otter,
    paddle,
    prototypes,
    soft_kmeans,
    stata,
    tip_adapter,
    transclip,
    zero_shot,
    zero_shot_family,
    zlap,
)
from unem.methods.base import GEMMethod, Method, MethodInfo, create, create_for, list_methods, method_info, register

__all__ = ["GEMMethod", "Method", "MethodInfo", "create", "create_for", "list_methods", "method_info", "register"]
