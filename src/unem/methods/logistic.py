"""Logistic regression on the support."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_positive
from unem.core.memory import in_parts
from unem.core.task import Prediction, Task, predicted
from unem.methods._common import Settings, is_sample, one_hot, unit_length
from unem.methods._registry import register_method


@register_method(
    "logistic",
    reference="Y. Tian et al., Rethinking few-shot image classification: a good embedding is all you need?, ECCV 2020",
    transductive=False,
    grid={"C": (0.1, 1.0, 10.0, 100.0)},
)
@dataclass(frozen=True)
class Logistic(Settings):
    r"""Logistic regression on the support's features, scaled to unit length; each query by itself.

    ``min_{W,b} ½‖W‖² + C Σ_S −ln softmax(W z_n + b)_{y_n}``, solved by Newton's method with conjugate gradients until
    the gradient vanishes (``max_iterations`` is a guard).
    """

    C: float = 10.0
    max_iterations: int = 100

    def __post_init__(self) -> None:
        check_count(1, max_iterations=self.max_iterations)
        check_positive(C=self.C)

    def predict(self, task: Task) -> Prediction:
        _, samples, features = task.support_rows.shape
        numbers = 2 * (samples + task.num_queries) * features + 10 * samples * task.num_classes
        return predicted(task, in_parts(task, numbers, self._fit_and_apply))

    def _fit_and_apply(self, task: Task) -> Tensor:
        unit_task = unit_length(task)
        support, query = unit_task.support, unit_task.query
        if support.shape[1] < support.shape[2]:  # the optimum lies in the span of the support, which is smaller
            basis = torch.linalg.qr(support.mT).Q
            support, query = support @ basis, query @ basis
        problem = Problem(_with_ones(support) * is_sample(task).unsqueeze(-1), one_hot(task), self.C)
        return (_with_ones(query) @ newton(problem, self.max_iterations)).softmax(-1)


@dataclass(frozen=True)
class Problem:
    """½‖W‖² + C Σ_n −ln softmax(x_n W)_{y_n}; the last row of W is the intercept. Padding rows of x and y are zero."""

    x: Float[Tensor, "task sample feature"]
    y: Float[Tensor, "task sample class"]
    C: float

    def penalised(self, w: Tensor) -> Tensor:
        return torch.cat([w[:, :-1], torch.zeros_like(w[:, -1:])], 1)

    def value(self, w: Tensor) -> Tensor:
        loss = -(self.y * (self.x @ w).log_softmax(-1)).sum((1, 2))
        return self.C * loss + 0.5 * self.penalised(w).square().sum((1, 2))

    def gradient(self, w: Tensor, p: Tensor) -> Tensor:
        return self.C * self.x.mT @ (p - self.y) + self.penalised(w)

    def curvature(self, v: Tensor, p: Tensor) -> Tensor:
        """The Hessian times v."""
        change = p * (self.x @ v)
        return self.C * self.x.mT @ (change - p * change.sum(-1, keepdim=True)) + self.penalised(v)


def newton(problem: Problem, max_iterations: int, start: Tensor | None = None) -> Tensor:
    """Newton's method with backtracking; a task whose gradient has vanished is left alone."""
    w = problem.x.new_zeros(len(problem.x), problem.x.shape[2], problem.y.shape[2]) if start is None else start
    eps = torch.finfo(w.dtype).eps
    tolerance = max(eps**0.5, 8 * eps * problem.C * problem.x.shape[1])  # the second is the gradient's own rounding
    for _ in range(max_iterations):
        p = (problem.x @ w).softmax(-1)
        gradient = problem.gradient(w, p)
        active = gradient.abs().amax((1, 2)) > tolerance
        if not active.any():
            break
        uphill = torch.where(active.view(-1, 1, 1), gradient, 0.0)
        direction = _conjugate_gradients(problem, p, -uphill, steps=50)
        w = w + _backtrack(problem, w, direction, uphill, active) * direction
    return w


def _conjugate_gradients(problem: Problem, p: Tensor, right: Tensor, steps: int) -> Tensor:
    """Solve H v = right, nearly: a task rests once its residual is a thousandth of what it was."""
    v, residual, direction = torch.zeros_like(right), right, right
    size = first = _dot(right, right)
    for _ in range(steps):
        image = problem.curvature(direction, p)
        bend = _dot(direction, image)
        active = (size > 1e-6 * first) & (bend > 0)  # rounding may hide what little curvature is left
        if not active.any():
            break
        step = torch.where(active, size / bend, 0.0)
        v, residual = v + step * direction, residual - step * image
        size, before = _dot(residual, residual), size
        direction = residual + torch.where(active, size / before, 0.0) * direction
    return v


def _backtrack(problem: Problem, w: Tensor, direction: Tensor, gradient: Tensor, active: Tensor) -> Tensor:
    """The largest of 1, ½, ¼ … that decreases each task's value enough; 0 where there is nothing to gain."""
    value, slope = problem.value(w), _dot(gradient, direction).flatten()
    step = torch.where(active, 1.0, 0.0).to(w)
    slack = 4 * torch.finfo(w.dtype).eps * value.abs()  # near the optimum differences drown in rounding
    for _ in range(20):
        poor = problem.value(w + step.view(-1, 1, 1) * direction) > value + 1e-4 * step * slope + slack
        if not poor.any():
            break
        step = torch.where(poor, step / 2, step)
    return step.view(-1, 1, 1)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((1, 2), keepdim=True)


def _with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)
