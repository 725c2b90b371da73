"""The layers of :mod:`unem.core.numerics.gram_layers`, where the formulas are, in torch: for any device and
precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["TorchLayers"]


@dataclass
class _Layer:
    """What the gradient of a layer needs, but for the first, which knows no assignments."""

    assignments: Tensor
    weighed: Tensor
    inverse: Tensor
    """m."""
    dots: Tensor
    """A'."""
    both: Tensor
    """A + H."""
    left: Tensor
    """σ − u."""
    prior: Tensor
    """(σ − u)₊ + (Q − 1)ε."""


class TorchLayers(torch.autograd.Function):
    """See :func:`unem.core.numerics.gram_layers.gram_layers`: G, H, r, n, t, p, β, T, w, γ, ε and whether ln u is
    wanted.

    On a GPU each operation is a kernel whose launch costs more than its work: what can wait for the end is done there
    for all layers at once.
    """

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        gram, cross, norms, shots, text, *numbers, floor, log = inputs
        loop = _Loop(gram, cross, norms.unsqueeze(1), shots.unsqueeze(1), text, [_spread(n) for n in numbers], floor)
        u = loop.first(log=log and loop.count == 1)
        layers: list[_Layer] = []
        for number in range(1, loop.count):
            layer = loop.layer(u, number)
            u = loop.assign(number, log=log and number == loop.count - 1)
            layers.append(layer)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(u)
            ctx.loop, ctx.layers, ctx.log, ctx.shapes = loop, layers, log, [n.shape for n in numbers]
        return u

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        (u,) = ctx.saved_tensors
        sums, du = _Sums(ctx.loop), gradient
        through: Any = torch._log_softmax_backward_data if ctx.log else torch._softmax_backward_data
        for number, layer in reversed(list(enumerate(ctx.layers, 1))):
            du = sums.add(number, layer, through(du, u, -1, u.dtype))
            u, through = layer.assignments, torch._softmax_backward_data
        sums.add_first(through(du, u, -1, u.dtype))
        numbers = (_gathered(d, shape) for d, shape in zip(sums.of_numbers(), ctx.shapes, strict=True))
        return *sums.of_statistics(), None, None, *numbers, None, None


class _Loop:
    """The layers forward; likelihoods m∘e and ln π of all of them."""

    def __init__(
        self,
        gram: Tensor,
        cross: Tensor,
        norms: Tensor,
        shots: Tensor,
        text: Tensor | None,
        numbers: list[Tensor],
        floor: float,
    ) -> None:
        self.gram, self.cross, self.norms, self.shots, self.text = gram, cross, norms, shots, text
        self.p, self.beta, self.heat, self.w, self.gamma = numbers
        self.own = gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        self.floor = floor * max(cross.shape[1] - 1, 1)  # ln(Q − 1) is the same for all classes, and cancels
        self.count = len(self.beta)
        self.likelihoods = cross.new_empty(self.count, *cross.shape)
        self.log_priors = torch.zeros_like(self.likelihoods)

    def first(self, *, log: bool) -> Tensor:
        self.inverse = self.shots.reciprocal()
        value = torch.addcmul(self.cross, self.inverse, self.norms, value=-0.5)
        torch.mul(value, self.inverse, out=self.likelihoods[0])
        return self.assign(0, log=log)

    def layer(self, u: Tensor, number: int) -> _Layer:
        weight = self.w[number]
        v, assigned = weight * u, u.sum(1, keepdim=True)
        all_dots = torch.baddbmm(self.cross, self.gram, v)
        both = all_dots + self.cross
        norms = (v * both).sum(1, keepdim=True).add_(self.norms)
        dots = torch.addcmul(all_dots, v, self.own, value=-1)
        inverse = (torch.addcmul(self.shots, weight, assigned) - v).reciprocal_()
        norms = torch.addcmul(norms, v, all_dots.add_(dots), value=-1)
        torch.mul(torch.addcmul(dots, inverse, norms, value=-0.5), inverse, out=self.likelihoods[number])
        left = assigned - u
        prior = left.clamp_min(0).add_(self.floor)
        torch.log(prior, out=self.log_priors[number])
        return _Layer(u, v, inverse, dots, both, left, prior)

    def assign(self, number: int, *, log: bool) -> Tensor:
        score = self.p * self.likelihoods[number]
        if number > 0:
            score.addcmul_(self.beta[number], self.log_priors[number])
        if self.text is not None:
            score.addcmul_(self.gamma[number], self.text)
        score /= self.heat[number]
        return score.log_softmax(-1) if log else score.softmax(-1)


class _Sums:
    """Gradients, which add up over the layers."""

    def __init__(self, loop: _Loop) -> None:
        self.loop = loop
        self.gram, self.cross, self.norms = (torch.zeros_like(t) for t in (loop.gram, loop.cross, loop.norms))
        self.own = torch.zeros_like(loop.cross)
        self.scores = torch.empty_like(loop.likelihoods)
        self.weights = loop.cross.new_zeros(loop.count, len(loop.cross))

    def add_first(self, dscore: Tensor) -> None:
        """Of the first layer, given that of its scores."""
        loop = self.loop
        ds = torch.div(dscore, loop.heat[0], out=self.scores[0])
        a = (loop.inverse * ds).mul_(loop.p)
        self.cross += a
        self.norms -= 0.5 * loop.inverse * a.sum(1, keepdim=True)

    def add(self, number: int, layer: _Layer, dscore: Tensor) -> Tensor:
        """Of a later one; returns that of the assignments before."""
        loop, u, v = self.loop, layer.assignments, layer.weighed
        likelihood = loop.likelihoods[number]
        ds = torch.div(dscore, loop.heat[number], out=self.scores[number])
        a = (layer.inverse * ds).mul_(loop.p)
        ma = layer.inverse * a
        dq = ma.sum(1, keepdim=True).mul_(-0.5)
        ddots = torch.addcmul(a, v, ma + dq)
        self.gram.baddbmm_(ddots, v.mT)
        self.cross.add_(ddots).addcmul_(v, dq)
        self.norms += dq
        self.own.addcmul_(v, torch.addcmul(a, ma, v, value=0.5), value=-1)
        dmass = ma.mul_(layer.dots).addcmul_(a, likelihood, value=-2).sum(1, keepdim=True)
        dv = torch.bmm(loop.gram, ddots).addcmul_(layer.both, dq)
        dv.addcmul_(a, torch.sub(loop.own, likelihood, alpha=2), value=-1).add_(dmass)
        torch.sum(u * dv, (1, 2), out=self.weights[number])
        dprior = torch.ops.aten.threshold_backward((ds * loop.beta[number]).div_(layer.prior), layer.left, 0)
        return dv.mul_(loop.w[number]).sub_(dprior).add_(dprior.sum(1, keepdim=True))

    def of_statistics(self) -> tuple[Tensor, Tensor, Tensor]:
        self.gram.diagonal(dim1=-2, dim2=-1).add_(self.own.sum(-1))
        return self.gram, self.cross, self.norms.squeeze(1)

    def of_numbers(self) -> tuple[Tensor, ...]:
        """``∂T = −Σ ∂s∘s/T``, and s is a sum whose parts the other numbers scale."""
        loop = self.loop
        speaks, balances = ((self.scores * part).sum((2, 3)) for part in (loop.likelihoods, loop.log_priors))
        texts = torch.zeros_like(speaks) if loop.text is None else (self.scores * loop.text).sum((2, 3))
        beta, heat, gamma = (n.flatten(1) for n in (loop.beta, loop.heat, loop.gamma))
        temperatures = -(loop.p.flatten() * speaks + beta * balances + gamma * texts) / heat
        return speaks.sum(0), balances, temperatures, self.weights, texts


def _spread(numbers: Tensor) -> Tensor:
    """For tasks, queries and classes."""
    return numbers.unsqueeze(-1).unsqueeze(-1)


def _gathered(gradient: Tensor, shape: torch.Size) -> Tensor:
    return gradient if gradient.shape == shape else gradient.sum(-1, keepdim=True)
