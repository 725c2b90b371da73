"""α-TIM."""

from dataclasses import dataclass

from unem.methods._registry import register_method
from unem.methods.tim import PrototypeDescent


@register_method(
    "alpha-tim",
    reference="O. Veilleux et al., Realistic evaluation of transductive few-shot learning, NeurIPS 2021",
    grid={"marginal_alpha": (2.0, 4.0, 7.0), "conditional_alpha": (2.0, 5.0)},
)
@dataclass(frozen=True)
class AlphaTIM(PrototypeDescent):
    r"""α-TIM: TIM with α-entropies, which forgive class proportions that are not uniform.

    The objective of ``tim-gd`` with Tsallis' entropy ``H_α(p) = (1 − Σ_k p_k^α)/(α − 1)`` for the marginal (α = 7) and
    for the conditional term (α = 5); α → 1 is Shannon's. The cross-entropy on the support is Shannon's, as in the
    published settings, where the first of the three α is not in use.
    """

    marginal_alpha: float = 7.0
    conditional_alpha: float = 5.0
    cross_entropy: float = 1.0
    marginal: float = 1.0
    conditional: float = 1.0
    temperature: float = 15.0
    learning_rate: float = 1e-4
    iterations: int = 1000
