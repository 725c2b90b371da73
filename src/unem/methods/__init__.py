"""Every method that can be compared, one file each, behind one contract and one registry."""

from unem.methods import (  # noqa: F401
    baseline,
    bd_cspn,
    em_dirichlet,
    em_gaussian,
    laplacian_shot,
    learned,
    lr_ici,
    paddle,
    prototypes,
    pt_map,
    soft_kmeans,
    zero_shot,
)
from unem.methods.base import GEMMethod, Method, MethodInfo, create, create_for, list_methods, method_info, register

__all__ = ["GEMMethod", "Method", "MethodInfo", "create", "create_for", "list_methods", "method_info", "register"]
