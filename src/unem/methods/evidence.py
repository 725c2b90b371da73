"""The default answer as methods: views of one fit (:mod:`unem.evidence`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from unem.core.memory import in_parts
from unem.core.task import Prediction, Task, predicted
from unem.errors import InputError
from unem.evidence import HYPOTHESES, MOST_TOGETHER, Fitted, FittedTexts, Memory, Numbers, View, fit_tasks
from unem.methods._common import Settings, one_hot
from unem.methods._registry import register_method

__all__ = ["Evidence", "EvidenceJoint", "SettledEvidence", "WhitenedMean", "ZeroShotEvidence"]

_REFERENCE = (
    "this library; M. Saerens et al., Adjusting the outputs of a classifier to new a priori probabilities, 2002"
)


@dataclass(frozen=True)
class _OnWhitened(Settings):
    """What methods on whitened directions share: one fit of each task, tasks in parts that fit."""

    flat: ClassVar[bool] = True
    """Memory grows with the number of queries, not with its square."""
    uses_text: ClassVar[bool] = False

    def predict(self, task: Task) -> Prediction:
        if task.num_classes == 1:
            return predicted(task, task.query.new_ones(len(task), task.num_queries, 1))
        samples, together = task.support_labels.shape[1], min(task.num_queries, MOST_TOGETHER)
        numbers = samples * (16 * samples + 4 * task.num_features) + 4 * (task.num_classes + together) ** 2
        numbers += together * (3 * task.num_features + 12 * len(HYPOTHESES) * task.num_classes)
        numbers += task.num_queries * task.num_classes
        with torch.no_grad():
            return predicted(task, in_parts(task, numbers, self._probabilities))

    def fit(self, task: Task) -> Fitted:
        """The support of each task; its queries play no part."""
        if self.uses_text and task.text is None:
            raise InputError(f"text: {self.name} needs texts of the classes, the task has none")
        return fit_tasks(task.support, one_hot(task), task.text if self.uses_text else None)

    def _probabilities(self, task: Task) -> Tensor:
        raise NotImplementedError


@register_method("whitened-mean", reference=_REFERENCE, transductive=False)
@dataclass(frozen=True)
class WhitenedMean(_OnWhitened):
    r"""Nearest class mean in whitened directions, each query by itself, with calibrated probabilities.

    Features of unit length, minus the support's mean, are whitened by the shrunk within-class covariance of the support
    and brought to unit length again. The scale of the distances is the one that held-out support samples ask for.
    """

    def _probabilities(self, task: Task) -> Tensor:
        return self.fit(task).independent(task.query).softmax(-1)


@register_method("evidence", reference=_REFERENCE)
@dataclass(frozen=True)
class Evidence(_OnWhitened):
    r"""Joint classification whose class proportions are judged by the evidence of the task itself.

    There is no training beforehand, and no schedule: what is fitted to a task is fitted while it is answered.

    On likelihoods in whitened directions, calibrated on held-out support samples, each query is judged by the counts of
    the others under a prior on the class proportions. Four hypotheses, few classes, uneven numbers, a dominant class
    and even numbers, each move the class means towards the queries, a mean being believed as much as there are samples
    behind it, and are averaged by their evidence, so that with all classes present the answer stays close to the
    independent one. Where the numbers are unequal, logistic regression on class means and on the queries that are sure
    answers with them.

    Where there are more than some thousand queries, that many of them move the means, and all are counted and judged.
    """

    sample_size: ClassVar[int] = MOST_TOGETHER
    carries: ClassVar[bool] = True
    """Batches may come one after another."""

    def _probabilities(self, task: Task) -> Tensor:
        together = len(task) if task.num_queries <= MOST_TOGETHER else 1
        parts = [task[i : i + together] for i in range(0, len(task), together)]
        return torch.cat([self.fit(part).predict(part.query) for part in parts])

    def predict_after(self, task: Task, before: Memory | None) -> tuple[Prediction, Memory]:
        """Classify a batch of queries with what earlier ones left, and what this one leaves; see
        :class:`unem.inference.Stream`.

        Where the batch contradicts the proportions of earlier ones, they are forgotten: as far as its evidence is
        smaller with them than without.
        """
        with torch.no_grad():
            fitted = self.fit(task)
            view = fitted.view(task.query)
            agreement = view.queries.weights.new_ones(len(task), 1)
            if before is not None:
                after = fitted.view(task.query, memory=before)
                gained = after.outcome.evidence.amax(1) - view.outcome.evidence.amax(1)
                agreement = gained.exp().clamp_max(1).unsqueeze(1)
                view = fitted.view(task.query, memory=before.weighed(agreement))
            u = view.probabilities()
        return predicted(task, u), Memory((view.queries.weights * u).sum(1), view.outcome.evidence, agreement)

    def settle(self, task: Task, queries: int) -> SettledEvidence:
        """What answers for any part of so many queries, of which the task has a sample."""
        with torch.no_grad():
            return SettledEvidence(self.fit(task).view(task.query, total=queries))


@dataclass(frozen=True)
class SettledEvidence:
    """What answers for any part of the queries of one task, which may lie on other machines."""

    view: View

    def count(self, query: Float[Tensor, "query feature"]) -> Tensor:
        return self.view.count(query.unsqueeze(0))

    def counted(self, counts: Tensor) -> SettledEvidence:
        return SettledEvidence(self.view.with_counts(counts))

    def answer(self, query: Float[Tensor, "query feature"]) -> Float[Tensor, "query class"]:
        return self.view.answer(query.unsqueeze(0))[0]


@register_method("evidence-joint", reference=_REFERENCE, inputs="image+text")
@dataclass(frozen=True)
class EvidenceJoint(Evidence):
    r"""``evidence`` on images and class texts: ``γ cos(z, t_k)`` joins the likelihood, γ by labelled samples."""

    uses_text: ClassVar[bool] = True


@register_method("zero-shot-evidence", reference=_REFERENCE, inputs="image+text", needs_support=False)
@dataclass(frozen=True)
class ZeroShotEvidence(Settings):
    r"""``evidence`` from class texts alone: the likelihood is ``100 cos(z, t_k)``; no support is used."""

    flat: ClassVar[bool] = True
    scale: float = Numbers().text_scale

    def fit(self, task: Task) -> FittedTexts:
        """The texts of the classes."""
        if task.text is None:
            raise InputError("text: zero-shot-evidence needs texts of the classes, the task has none")
        return FittedTexts(task.text, Numbers(text_scale=self.scale))

    def predict(self, task: Task) -> Prediction:
        fitted = self.fit(task)
        with torch.no_grad():
            return predicted(task, fitted.predict(task.query))
