"""Whitened directions against an independent form in float64, and where little is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.reference import whitened_rows
from unem.core.whitening import CHANNEL_SHRINK, SHRINK, class_means, fit_whitening


def some_support(tasks=2, classes=4, shots=5, features=7, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(torch.as_tensor(shots))
    stretch = torch.linspace(0.2, 3.0, features, dtype=dtype)
    rows = 2 * torch.randn(tasks, classes, features, generator=g, dtype=dtype)[:, labels]
    rows = rows + stretch * torch.randn(tasks, len(labels), features, generator=g, dtype=dtype)
    member = torch.nn.functional.one_hot(labels, classes).to(dtype).expand(tasks, -1, -1).contiguous()
    return rows, member, torch.randn(tasks, 6, features, generator=g, dtype=dtype)


@pytest.mark.parametrize("features", [7, 40])  # fewer and more than there are samples
@pytest.mark.parametrize("shots", [5, [1, 2, 5, 9]])
@pytest.mark.parametrize(("b", "a"), [(0.3, 0.7), (0.5, 0.85)])
def test_products_are_those_of_the_formula(features, shots, b, a):
    support, member, points = some_support(features=features, shots=shots)
    whitening, sums, _ = fit_whitening(support, member, b, a)
    seen = whitening.see(points)
    gram, with_sums = whitening.products(seen, seen), whitening.products(seen, sums)
    for i in range(len(support)):
        labels = member[i].argmax(1).numpy()
        x, z = whitened_rows(support[i].numpy(), labels, points[i].numpy(), b, a)
        by_class = np.stack([x[labels == k].sum(0) for k in range(4)])
        np.testing.assert_allclose(gram[i].numpy(), z @ z.T, atol=1e-9)
        np.testing.assert_allclose(with_sums[i].numpy(), z @ by_class.T, atol=1e-9)
        np.testing.assert_allclose(whitening.squares(sums)[i].numpy(), (by_class**2).sum(1), atol=1e-9)


@pytest.mark.parametrize("features", [7, 40])
def test_sums_of_the_support_are_sums_of_its_rows(features):
    support, member, points = some_support(features=features)
    whitening, sums, _ = fit_whitening(support, member)
    seen, again = whitening.see(points), whitening.see(support).sums(member)
    torch.testing.assert_close(whitening.products(seen, again), whitening.products(seen, sums), rtol=0, atol=1e-9)


@pytest.mark.parametrize("features", [7, 40])
def test_with_one_shot_channels_are_weighed(features):
    support, member, points = some_support(shots=1, features=features)
    whitening = fit_whitening(support, member)[0]
    seen = whitening.see(points)
    for i in range(len(support)):
        _, z = whitened_rows(support[i].numpy(), np.arange(4), points[i].numpy(), CHANNEL_SHRINK, SHRINK)
        np.testing.assert_allclose(whitening.products(seen, seen)[i].numpy(), z @ z.T, atol=1e-9)


def test_the_fewer_samples_the_less_channels_are_weighed():
    support, member, _ = some_support(tasks=1, classes=24, shots=1, features=40)
    spread = [fit_whitening(support[:, :n], member[:, :n, :n])[0].gain.log().std().item() for n in (2, 24)]
    assert spread[0] < spread[1]


def test_a_single_sample_is_seen_as_it_is():
    support, member, points = some_support(tasks=1, classes=1, shots=1)
    seen = fit_whitening(support, member)[0].see(points)
    plain = torch.nn.functional.normalize(points, dim=-1) - torch.nn.functional.normalize(support, dim=-1)
    torch.testing.assert_close(seen.features, torch.nn.functional.normalize(plain, dim=-1), rtol=0, atol=1e-9)


def test_copies_and_zeros_stay_finite():
    support, member, points = some_support()
    for rows in (torch.zeros_like(support), support[:, :1].expand_as(support)):
        assert torch.isfinite(between(rows, member, points)).all()


def test_one_feature_has_two_directions():
    """Residuals that are there before rows are brought to unit length again, and not after."""
    support = torch.tensor([[[-1.0], [2.0], [-3.0], [0.0]]], dtype=torch.float64)
    member = torch.eye(2, dtype=torch.float64)[torch.tensor([[0, 1, 0, 1]])]
    assert torch.isfinite(between(support, member, support)).all()


def between(support, member, points):
    whitening, sums, _ = fit_whitening(support, member)
    return whitening.products(whitening.see(points), sums)


@pytest.mark.parametrize("features", [7, 40])
def test_padding_and_the_batch_do_not_matter(features):
    support, member, points = some_support(tasks=3, features=features)
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
    torch.testing.assert_close(single.double(), double, rtol=0, atol=3e-3)


def test_a_class_without_samples_has_a_mean_of_zeros():
    rows, member, _ = some_support(tasks=1)
    member = torch.cat([member, torch.zeros_like(member[..., :1])], -1)
    assert class_means(rows, member)[0, -1].abs().max() == 0
