"""Every method that can be compared, one file each, behind one contract and one registry."""

from unem.methods import em_dirichlet, em_gaussian, learned, paddle, prototypes, soft_kmeans, zero_shot  # noqa: F401
from unem.methods.base import GEMMethod, Method, MethodInfo, create, create_for, list_methods, method_info, register

__all__ = ["GEMMethod", "Method", "MethodInfo", "create", "create_for", "list_methods", "method_info", "register"]
