"""``evidence`` for queries in shards, which may lie on other machines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from jaxtyping import Float, Int
from torch import Tensor

from unem.core.whitening import Whitened
from unem.methods._evidence_many import Settled, hashes, side_of

__all__ = ["SettledEvidence", "row_numbers"]


@dataclass(frozen=True)
class SettledEvidence:
    """What the layers settled on for one task, as plain features of some queries meet it."""

    settled: Settled
    text: Float[Tensor, "1 class feature"] | None

    def count(self, query: Float[Tensor, "query feature"]) -> Tensor:
        return self.settled.counted(iter([self._seen(query)]))

    def counted(self, counts: Tensor) -> Self:
        return replace(self, settled=replace(self.settled, counts=counts.to(self.settled.counts)))

    def answer(self, query: Float[Tensor, "query feature"]) -> Float[Tensor, "query class"]:
        return self.settled.answer(*self._seen(query))[0]

    def _seen(self, query: Tensor) -> tuple[Whitened, Tensor | None]:
        rows, likelihood = query.unsqueeze(0), self.settled.likelihood
        return likelihood.whitening.see(rows), side_of(likelihood, rows, self.text)


def row_numbers(query: Float[Tensor, "query feature"]) -> Int[Tensor, " query"]:
    """A number for each row that depends on its values alone; the rows with the smallest ones are the sample."""
    return hashes(query)
