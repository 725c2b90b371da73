"""The layers whose gradient is written out against the loop and autograd."""

from __future__ import annotations

import pytest
import torch

import unem
from helpers.families import random_task
from unem.core.em import iterate
from unem.core.laws.directions import DirectionStatistics
from unem.core.numerics import native_layers
from unem.core.numerics.backends import plain_torch
from unem.core.numerics.gram_layers import gram_layers, has_compiled_layers

needs_compiler = pytest.mark.skipif(not native_layers.is_available(), reason="no C compiler here")


def problem(text, per_task, layers=4):
    """Statistics, and β, T, w, γ and p, for all tasks or for each."""
    task = random_task(tasks=3, queries=11, classes=6)
    law = unem.Directions(neighbours=0)
    scaled = law.scaled(law.prepare(task), 1.0)
    generator = torch.Generator().manual_seed(1)
    count = 3 if per_task else 1

    def some(*shape):
        return (torch.rand(*shape, generator=generator, dtype=torch.float64) + 0.5).requires_grad_()

    numbers = [some(count), *(some(layers, count) for _ in range(4))]
    said = torch.randn(scaled.cross.shape, generator=generator, dtype=torch.float64) if text else None
    inputs = [x.detach().clone().requires_grad_() for x in (scaled.gram, scaled.cross, scaled.sum_norms)]
    return law, inputs, scaled.shots, said, numbers


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("per_task", [True, False])
@pytest.mark.parametrize("text", [True, False])
def test_layers_and_their_gradient_are_the_loop_s(text, per_task, log):
    law, inputs, shots, said, numbers = problem(text, per_task)
    floor = law.proportion_floor
    ours = gram_layers(*inputs, shots, said, *numbers, floor=floor, log=log)
    precision, balances, temperatures, weights, texts = (n.unsqueeze(-1).unsqueeze(-1) for n in numbers)
    statistics = DirectionStatistics(
        shots=shots, gram=inputs[0], cross=inputs[1], sum_norms=inputs[2], precision=precision, text=said
    )
    loop = iterate(law, statistics, list(balances), list(temperatures), list(texts), list(weights), log=log)
    torch.testing.assert_close(ours, loop)
    direction = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = [*inputs, *(numbers if text else numbers[:-1])]
    mine, theirs = (torch.autograd.grad((u * direction).sum(), wanted) for u in (ours, loop))
    symmetric = [(g[0] + g[0].mT) / 2 for g in (mine, theirs)]  # of a symmetric matrix nothing else is defined
    torch.testing.assert_close(*symmetric)
    torch.testing.assert_close(mine[1:], theirs[1:])


def test_a_query_that_has_a_class_alone_has_no_gradient_through_what_rounding_leaves():
    law, inputs, shots, _, numbers = problem(text=False, per_task=False)
    hot = [inputs[0].detach().float(), inputs[1].detach().float(), inputs[2].detach().float()]
    numbers = [n.detach().float() for n in numbers]
    numbers[0] = (1e4 * numbers[0]).requires_grad_()  # assignments are 0 or 1
    ours = gram_layers(*hot, shots.float(), None, *numbers, floor=law.proportion_floor, log=True)
    ours.sum().backward()
    assert torch.isfinite(numbers[0].grad).all()


@needs_compiler
@pytest.mark.parametrize("classes", [1, 5, 8, 17])
def test_scores_of_any_size_are_shared_among_the_classes_alone(classes):
    """What is padded to a whole vector stays out where scores are so large that differences of thousands round away."""
    task = random_task(tasks=2, queries=7, classes=classes)
    law = unem.Directions(neighbours=0)
    scaled = law.scaled(law.prepare(task), 1.0)
    inputs = [x.float() for x in (scaled.gram, scaled.cross, scaled.sum_norms)]
    numbers = [torch.tensor([1e13]), *(torch.ones(3, 1) for _ in range(4))]
    u = gram_layers(*inputs, scaled.shots.float(), None, *numbers, floor=law.proportion_floor, log=False)
    torch.testing.assert_close(u.sum(-1), torch.ones(2, 7))


def both_forms(queries, classes, layers, *, text, per_task, log, precision=1.0):
    """Assignments and gradients in float32, compiled and in torch."""
    generator = torch.Generator().manual_seed(queries)
    rows = torch.randn(3, queries, 8, generator=generator) / 3
    sums = torch.randn(3, classes, 8, generator=generator)
    inputs = [rows @ rows.mT, rows @ sums.mT, sums.square().sum(-1)]
    shots, said = torch.full((3, classes), 4.0), rows @ sums.mT if text else None
    numbers = [torch.rand(*shape, 3 if per_task else 1, generator=generator) + 0.5 for shape in [(), *[(layers,)] * 4]]
    numbers[0] *= precision
    direction = torch.randn(3, queries, classes, generator=generator)

    def run():
        free = [t.clone().requires_grad_() for t in (*inputs, *numbers)]
        u = gram_layers(*free[:3], shots, said, *free[3:], floor=1e-6, log=log)
        return u, torch.autograd.grad((u * direction).sum(), free, allow_unused=True)

    assert has_compiled_layers(inputs[0])
    ours = run()
    with plain_torch():
        assert not has_compiled_layers(inputs[0])
        return ours, run()


@needs_compiler
@pytest.mark.parametrize(("queries", "classes", "layers"), [(1, 3, 2), (2, 16, 3), (19, 17, 4), (75, 40, 3), (5, 4, 1)])
@pytest.mark.parametrize(("text", "per_task", "log"), [(True, True, True), (False, False, True), (True, False, False)])
def test_the_compiled_layers_are_those_of_torch(queries, classes, layers, text, per_task, log):
    (u, gradients), (theirs, wanted) = both_forms(queries, classes, layers, text=text, per_task=per_task, log=log)
    torch.testing.assert_close(u, theirs, rtol=1e-4, atol=1e-5)
    if queries == 1:
        return  # alone, a query is left out of everything: of gradients only rounding is left
    for ours, other in zip(gradients, wanted, strict=True):
        scale = float(other.abs().max()) + 1e-3
        torch.testing.assert_close(ours / scale, other / scale, rtol=0, atol=1e-4)


@needs_compiler
def test_classes_that_one_query_holds_alone_are_those_of_torch():
    (_, gradients), (_, wanted) = both_forms(3, 40, 4, text=False, per_task=False, log=True, precision=30)
    for ours, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


@needs_compiler
def test_what_is_not_a_number_stays_so():
    gram, cross, ones = torch.eye(4).expand(2, 4, 4), torch.zeros(2, 4, 3), torch.ones(2, 3)
    cross[0, 1, 2] = torch.nan
    numbers = [torch.ones(1), *(torch.ones(2, 1) for _ in range(4))]
    u = gram_layers(gram, cross, ones, ones, None, *numbers, floor=1e-6, log=False)
    assert u[0].isnan().any()
    assert torch.isfinite(u[1]).all()


@needs_compiler
def test_they_may_first_be_wanted_in_any_mode():
    with torch.inference_mode():
        native_layers.COMPILED.forget()
        assert native_layers.is_available()
