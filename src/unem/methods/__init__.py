"""Every method that can be compared, one file each, behind one contract and one registry."""

from unem.methods import (  # noqa: F401
    alpha_am,
    alpha_tim,
    baseline,
    bd_cspn,
    coop,
    em_dirichlet,
    em_gaussian,
    evidence,
    generalized_em,
    label_propagation,
    laplacian_shot,
    logistic,
    lp_plus_plus,
    lr_ici,
    otter,
    paddle,
    prototypes,
    pt_map,
    self_training,
    simpleshot,
    soft_kmeans,
    stata,
    tim,
    tip_adapter,
    transclip,
    unem,
    unem_plus,
    zero_shot,
    zero_shot_clustering,
    zlap,
)
from unem.methods._clip_prompts import ClipPromptEncoder
from unem.methods._registry import (
    Method,
    MethodInfo,
    create_for,
    create_method,
    grid_points,
    list_methods,
    method_for,
    method_info,
    register_method,
)
from unem.methods._settling import SettledTask, SettlingMethod
from unem.methods.coop import PromptEncoder
from unem.methods.unem import LearnedMethod

__all__ = [
    "ClipPromptEncoder",
    "LearnedMethod",
    "Method",
    "MethodInfo",
    "PromptEncoder",
    "SettledTask",
    "SettlingMethod",
    "create_for",
    "create_method",
    "grid_points",
    "list_methods",
    "method_for",
    "method_info",
    "register_method",
]
