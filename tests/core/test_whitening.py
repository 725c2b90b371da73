"""Whitened directions against an independent form in float64, and where little is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.clusters import permuted
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
    whitening = fit_whitening(support, member, b, a)
    sums = whitening.transform(support).sums(member)
    seen = whitening.transform(points)
    gram, with_sums = whitening.products(seen, seen), whitening.products(seen, sums)
    for i in range(len(support)):
        labels = member[i].argmax(1).numpy()
        x, z = whitened_rows(support[i].numpy(), labels, points[i].numpy(), b, a)
        by_class = np.stack([x[labels == k].sum(0) for k in range(4)])
        np.testing.assert_allclose(gram[i].numpy(), z @ z.T, atol=1e-9)
        np.testing.assert_allclose(with_sums[i].numpy(), z @ by_class.T, atol=1e-9)
        np.testing.assert_allclose(whitening.squares(sums)[i].numpy(), (by_class**2).sum(1), atol=1e-9)


@pytest.mark.parametrize("features", [7, 40])
def test_rows_have_length_one_and_sums_are_added_up(features):
    support, member, points = some_support(features=features)
    whitening = fit_whitening(support, member)
    seen = whitening.transform(points)
    torch.testing.assert_close(whitening.squares(seen), torch.ones(points.shape[:2], dtype=torch.float64))
    rows = whitening.transform(support)
    first, rest = rows.sums(member[:, :, :1]), rows.scaled(1 - member[:, :, 0]).sums(torch.ones_like(member[:, :, :1]))
    whole = rows.sums(torch.ones_like(member[:, :, :1]))
    torch.testing.assert_close(whitening.products(seen, first + rest), whitening.products(seen, whole))
    twice = torch.cat([whitening.products(seen, rows)] * 2, 2)
    torch.testing.assert_close(whitening.products(seen, rows.repeated(2)), twice)
    numbers = sum(0 if x is None else x.shape[-1] for x in (rows.features, rows.along))
    assert whitening.width == numbers


@pytest.mark.parametrize("features", [7, 40])
def test_the_order_of_samples_and_classes_does_not_matter(features):
    support, member, points = some_support(features=features, shots=[1, 2, 5, 9])
    turned, classes = permuted(17), permuted(4, 1)
    plain = between(support, member, points)
    again = between(support[:, turned], member[:, turned][:, :, classes], points)
    torch.testing.assert_close(again, plain[:, :, classes], rtol=0, atol=1e-9)


@pytest.mark.parametrize("features", [7, 40])
def test_the_length_of_rows_does_not_matter(features):
    support, member, points = some_support(features=features)
    lengths = torch.linspace(0.01, 50, support.shape[1], dtype=torch.float64).unsqueeze(1)
    plain = between(support, member, points)
    torch.testing.assert_close(between(lengths * support, member, 30 * points), plain, rtol=0, atol=1e-9)


@pytest.mark.parametrize("features", [7, 40])
@pytest.mark.parametrize("value", [0.0, 2.0])
def test_columns_that_are_constant_add_nothing(features, value):
    """Rows of length one, so that they stay constant: seen from the centre, nothing is in them."""
    support, member, points = some_support(features=features)
    wide = [
        torch.nn.functional.pad(torch.nn.functional.normalize(x, dim=-1), (3, 0), value=value)
        for x in (support, points)
    ]
    whitening = fit_whitening(wide[0], member)
    assert whitening.placed(wide[1])[..., :3].abs().max() < 1e-9
    assert torch.isfinite(between(wide[0], member, wide[1])).all()


@pytest.mark.parametrize("features", [7, 40])
def test_with_one_shot_channels_are_weighed(features):
    support, member, points = some_support(shots=1, features=features)
    whitening = fit_whitening(support, member)
    seen = whitening.transform(points)
    for i in range(len(support)):
        _, z = whitened_rows(support[i].numpy(), np.arange(4), points[i].numpy(), CHANNEL_SHRINK, SHRINK)
        np.testing.assert_allclose(whitening.products(seen, seen)[i].numpy(), z @ z.T, atol=1e-9)


def test_the_fewer_samples_the_less_channels_are_weighed():
    support, member, _ = some_support(tasks=1, classes=24, shots=1, features=40)
    spread = [fit_whitening(support[:, :n], member[:, :n, :n]).gain.log().std().item() for n in (2, 24)]
    assert spread[0] < spread[1]


def test_a_single_sample_is_seen_as_it_is():
    support, member, points = some_support(tasks=1, classes=1, shots=1)
    seen = fit_whitening(support, member).transform(points)
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
    whitening = fit_whitening(support, member)
    return whitening.products(whitening.transform(points), whitening.transform(support).sums(member))


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
