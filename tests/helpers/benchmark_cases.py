"""Cases and a machine on which the benchmark's bookkeeping is tested."""

from __future__ import annotations

from unem.benchmark import Case, Machine

TINY = {
    "gaussian": Case("gaussian", 6, 5, 2, queries=12, layers=3, tasks=2),
    "dirichlet": Case("dirichlet", 6, 6, 2, queries=12, layers=3, tasks=2),
}
MACHINE = Machine("cpu", "a machine", "", threads=2, flops=1e9, bandwidth=1e9)
