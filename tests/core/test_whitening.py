"""Whitened directions against an independent form in float64, and where little is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unem.core.whitening import class_means, fit_whitening


def some_support(tasks=2, classes=4, shots=5, features=7, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(shots)
    stretch = torch.linspace(0.2, 3.0, features, dtype=dtype)
    rows = 2 * torch.randn(tasks, classes, features, generator=g, dtype=dtype)[:, labels]
    rows = rows + stretch * torch.randn(tasks, len(labels), features, generator=g, dtype=dtype)
    member = torch.nn.functional.one_hot(labels, classes).to(dtype).expand(tasks, -1, -1).contiguous()
    return rows, member, torch.randn(tasks, 6, features, generator=g, dtype=dtype)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def written_out(support, member, points, a):
    """Unit length, minus the mean, times a Cholesky root of the inverse of (1−a) S_w + a v I, unit length."""
    x, z = unit(support), unit(points)
    centre = x.mean(0)
    x, z = x - centre, z - centre
    labels = member.argmax(1)
    residual = x - np.stack([x[labels == k].mean(0) for k in range(member.shape[1])])[labels]
    within = residual.T @ residual / (len(x) - member.shape[1])
    sigma = (1 - a) * within + a * np.diag(within).mean() * np.eye(len(within))
    root = np.linalg.cholesky(sigma)
    return unit(np.linalg.solve(root, z.T).T)


@pytest.mark.parametrize("features", [7, 40])  # fewer and more than there are samples
@pytest.mark.parametrize("a", [0.3, 0.7])
def test_inner_products_are_those_of_the_formula(features, a):
    support, member, points = some_support(features=features)
    whitening = fit_whitening(support, member, channel_shrinks=(1.0,), shrinks=(a,))
    found = whitening.distances(whitening(points), whitening(points))
    for i in range(len(support)):
        expected = written_out(support[i].numpy(), member[i].numpy(), points[i].numpy(), a)
        np.testing.assert_allclose(found[i].numpy(), 2 - 2 * expected @ expected.T, atol=1e-9)


def test_channels_are_divided_by_their_spread_within_classes():
    support, member, points = some_support(shots=40)
    whitening = fit_whitening(support, member, (1e-9,), (1 - 1e-9,))  # no rotation is left
    rows = torch.nn.functional.normalize(support, dim=-1)
    residual = rows - class_means(rows, member).repeat_interleave(40, 1)
    product = (residual.square().sum(1).sqrt() * whitening.gains[0].squeeze(1)).log()
    assert product.std(-1).max() < 1e-5
    assert whitening.distances(whitening(points), whitening(points)).diagonal(dim1=1, dim2=2).max() < 1e-9


def test_one_shot_is_the_unit_view():
    support, member, points = some_support(shots=1)
    whitening = fit_whitening(support, member)
    found = whitening.distances(whitening(points), whitening(points))
    plain = torch.nn.functional.normalize(points, dim=-1)
    plain = plain - torch.nn.functional.normalize(support, dim=-1).mean(1, keepdim=True)
    plain = torch.nn.functional.normalize(plain, dim=-1)
    torch.testing.assert_close(found, 2 - 2 * plain @ plain.mT, rtol=0, atol=1e-9)


def test_copies_and_zeros_stay_finite():
    support, member, points = some_support()
    for rows in (torch.zeros_like(support), support[:, :1].expand_as(support)):
        assert torch.isfinite(fit_whitening(rows, member)(points)).all()


def between(support, member, points):
    whitening = fit_whitening(support, member)
    return whitening.distances(whitening(points), class_means(whitening(support), member))


def test_padding_and_the_batch_do_not_matter():
    support, member, points = some_support(tasks=3)
    padded = torch.cat([support, torch.full_like(support[:, :4], 9.0)], 1)
    zeros = torch.cat([member, torch.zeros_like(member[:, :4])], 1)
    whole = between(support, member, points)
    torch.testing.assert_close(between(padded, zeros, points), whole, rtol=0, atol=1e-8)
    torch.testing.assert_close(between(support[1:2], member[1:2], points[1:2]), whole[1:2], rtol=0, atol=1e-8)


@pytest.mark.parametrize("features", [30, 200])
def test_single_precision_is_close_to_double(features):
    support, member, points = some_support(features=features, shots=10)
    double = between(support, member, points)
    single = between(support.float(), member.float(), points.float())
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-3)
