"""Every method that can be compared, one file each, behind one contract and one registry."""

from unem.methods import (  # noqa: F401
    alpha_am,
    alpha_tim,
    baseline,
    bd_cspn,
    coop,
    em_dirichlet,
    em_gaussian,
    generalized_em,
    label_propagation,
    laplacian_shot,
    learned,
    logistic,
    lp_plus_plus,
    lr_ici,
    otter,
    paddle,
    plus,
    prototypes,
    pt_map,
    simpleshot,
    soft_kmeans,
    stata,
    tim,
    tip_adapter,
    transclip,
    zero_shot,
    zero_shot_family,
    zlap,
)
from unem.methods._registry import (
    GEMMethod,
    Method,
    MethodInfo,
    create,
    create_for,
    list_methods,
    method_info,
    register,
)

__all__ = ["GEMMethod", "Method", "MethodInfo", "create", "create_for", "list_methods", "method_info", "register"]
