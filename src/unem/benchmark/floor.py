r"""The least work of a case, and with it the least time on a machine.

The floor is the least time a case could take: the larger of its arithmetic over the machine's measured float32 rate
(a large matrix product, TF32 off) and its traffic over the measured bandwidth (a large copy). With K classes, d
features, s shots, Q queries and L layers, one task costs at least

* Gaussian forward, arithmetic: the cheaper of the two exact forms. Gram: ``2Q²d + 2QKd + (L−1)·2Q²K`` (the symmetry of
  the Gram matrix is not used); explicit means: ``(2L−1)·2QKd``. Traffic: support, labels and queries read, u written.
* Gaussian training step on kept statistics: twice the products of the loop, ``(L−1)·2Q²K`` or ``(2L−1)·2QKd``
  (features are constant, so that a product has one in its backward pass). Traffic: the smaller statistics and labels
  read.
* Dirichlet forward, arithmetic: two products a layer, ``L·4QKd``, and five evaluations of (ψ, ψ') at 40 operations each
  for every element of α, ``L·200Kd``. Traffic: support, labels and queries read, u written, and in each layer ȳ and α
  written and read, as they exceed the caches of a GPU.
* Dirichlet training step: three times the products (T_z makes ln z a variable too), and one evaluation more (the
  implicit gradient). Traffic: ȳ and α are read once more in the backward pass.

``distance`` is time over floor. Element-wise work, sums over the support and launches are not counted, so 1 is out of
reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from unem.benchmark.cases import Case, Mode
from unem.benchmark.machine import Machine

__all__ = ["Work", "least_work"]

DIGAMMA_EVALUATIONS, DIGAMMA_FLOPS = 5, 40


@dataclass(frozen=True)
class Work:
    """Float operations and bytes of one task."""

    flops: int
    bytes: int

    def floor(self, machine: Machine) -> tuple[float, str]:
        """The least seconds on a machine, and what bounds them."""
        arithmetic, memory = self.flops / machine.flops, self.bytes / machine.bandwidth
        return max(arithmetic, memory), "arithmetic" if arithmetic >= memory else "memory"


def least_work(case: Case, mode: Mode) -> Work:
    """The fewest operations and bytes of one task, counted as the module says."""
    k, d, q, layers = case.classes, case.features, case.queries, case.layers
    inputs = 4 * (case.shots * k + q) * d + 8 * case.shots * k
    if case.law == "gaussian":
        gram, means = (layers - 1) * 2 * q * q * k, (2 * layers - 1) * 2 * q * k * d
        if mode == "step":
            return Work(2 * min(gram, means), 4 * min(q * q + q * k, (q + k) * d) + 8 * q)
        prepare = 2 * q * q * d + 2 * q * k * d
        return Work(min(prepare + gram, means), inputs + 4 * q * k)
    products, evaluation, table = 4 * q * k * d, DIGAMMA_FLOPS * k * d, 4 * k * d
    if mode == "step":
        flops = layers * (3 * products + (DIGAMMA_EVALUATIONS + 1) * evaluation)
        return Work(flops, inputs + 8 * q + layers * 6 * table)
    return Work(layers * (products + DIGAMMA_EVALUATIONS * evaluation), inputs + 4 * q * k + layers * 4 * table)
