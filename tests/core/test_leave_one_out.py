"""Leave-one-out distances in closed form against a whitening that is fitted again without the sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.clusters import clusters, permuted
from unem.core import leave_one_out as module
from unem.core.leave_one_out import leave_each_out
from unem.core.whitening import fit_whitening

SIZES = (5, 3, 1, 7)


def uneven(features, sizes=SIZES, dtype=torch.float64):
    """Two tasks of the same sizes in different orders; the second one has a row that is no sample."""
    made = clusters(2, len(sizes), sizes, 1, features, noise=1.0, dtype=dtype)
    orders = torch.stack([permuted(sum(sizes), seed) for seed in (1, 2)])
    support, member = (
        x.gather(1, orders.unsqueeze(-1).expand(-1, -1, x.shape[2])) for x in (made.support, made.member)
    )
    member[1, 0] = 0
    return support, member


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def fitted_again(placed, member, i, ridge):
    """Squared distances of sample i to the class means of the others, in the metric of the others, by solving."""
    keep = [j for j in range(len(placed)) if j != i and member[j].sum() > 0]
    x, y, y_all = placed[keep], member[keep], member[member.sum(1) > 0]
    present = y.sum(0) > 0
    means = np.stack([x[y[:, k] == 1].mean(0) if present[k] else np.zeros(x.shape[1]) for k in range(y.shape[1])])
    residuals = x - y @ means
    freedom = len(y_all) - (y_all.sum(0) > 0).sum()  # the level of shrinkage stays, and so does what it is divided by
    root = np.linalg.cholesky(np.linalg.inv(residuals.T @ residuals / freedom + ridge * np.eye(x.shape[1])))
    seen, itself = unit(x @ root), unit(placed[i] @ root)
    means = np.stack(
        [seen[y[:, k] == 1].mean(0) if present[k] else np.full(x.shape[1], np.nan) for k in range(len(means))]
    )
    return ((itself - means) ** 2).sum(-1)


@pytest.mark.parametrize("features", [6, 30])  # fewer and more than there are samples
def test_distances_are_those_of_a_second_fit(features):
    support, member = uneven(features)
    whitening = fit_whitening(support, member)
    found = leave_each_out(whitening, support, member)
    placed, sizes = whitening.placed(support), member.sum(1)
    assert torch.equal(found.mask.sum(1), (sizes * (sizes > 1)).sum(1).long())  # the only one of its class cannot be
    for task in range(2):
        for place, i in enumerate(found.rows[task].tolist()):
            if found.mask[task, place]:
                expected = fitted_again(placed[task].numpy(), member[task].numpy(), i, float(whitening.ridge[task]))
                there = ~np.isnan(expected)
                assert there.sum() >= len(SIZES) - 1
                np.testing.assert_allclose(found.distances[task, place].numpy()[there], expected[there], atol=1e-9)
                assert member[task, i].argmax() == found.labels[task, place]


def test_variances_are_those_of_means_without_the_sample():
    support, member = uneven(30)
    found = leave_each_out(fit_whitening(support, member), support, member)
    for place, i in enumerate(found.rows[0].tolist()):
        sizes = (member[0].sum(0) - member[0, i]).clamp_min(1)
        torch.testing.assert_close(found.variances[0, place], 1 / sizes)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_samples_does_not_matter(seed):
    support, member = uneven(30)
    turned = permuted(support.shape[1], seed)
    a = leave_each_out(fit_whitening(support, member), support, member)
    support, member = support[:, turned], member[:, turned]
    b = leave_each_out(fit_whitening(support, member), support, member)
    torch.testing.assert_close(a.distances * a.mask.unsqueeze(-1), b.distances * b.mask.unsqueeze(-1))
    assert torch.equal(turned[b.rows][b.mask], a.rows[a.mask])


@pytest.mark.parametrize("features", [6, 30])
def test_padding_does_not_matter(features):
    support, member = uneven(features)
    plain = leave_each_out(fit_whitening(support, member), support, member)
    wide, zeros = (
        torch.nn.functional.pad(support, (0, 0, 0, 9), value=3.0),
        torch.nn.functional.pad(member, (0, 0, 0, 9)),
    )
    found = leave_each_out(fit_whitening(wide, zeros), wide, zeros)
    assert torch.equal(found.mask.sum(1), plain.mask.sum(1))
    for task in range(2):
        a, b = (dict(zip(x.rows[task].tolist(), x.distances[task], strict=True)) for x in (plain, found))
        for row in plain.rows[task][plain.mask[task]].tolist():
            torch.testing.assert_close(b[row], a[row], rtol=0, atol=1e-9)


def test_some_of_many_samples_are_held_out(monkeypatch):
    """Against the means of all, one of each class first."""
    support, member = uneven(30)
    whitening = fit_whitening(support, member)
    whole = leave_each_out(whitening, support, member)
    monkeypatch.setattr(module, "MOST_HELD", 6)
    some = leave_each_out(whitening, support, member)
    assert some.rows.shape == (2, 6)
    assert len(some.labels[0, :4].unique()) == 4
    torch.testing.assert_close(some.distances, whole.distances[:, :6])
    assert torch.equal(some.rows, whole.rows[:, :6])


def test_of_very_many_samples_some_are_in_the_means(monkeypatch):
    """As many of each class as of any other, while there are some."""
    support, member = uneven(30)
    monkeypatch.setattr(module, "MOST", 10)
    some = leave_each_out(fit_whitening(support, member), support, member)
    assert some.rows.shape == (2, 10)
    assert torch.bincount(some.labels[0]).tolist() == [3, 3, 1, 3]
    first = some.labels[0] == 0
    torch.testing.assert_close(some.variances[0, first, 0], torch.full((3,), 1 / 2, dtype=torch.float64))
    torch.testing.assert_close(some.variances[0, first, 3], torch.full((3,), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("features", [6, 30])
def test_single_precision_is_close_to_double(features):
    support, member = uneven(features)
    double, single = (
        leave_each_out(fit_whitening(x, y), x, y).distances
        for x, y in ((support, member), (support.float(), member.float()))
    )
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-3)


def test_samples_that_coincide_and_zeros_stay_finite():
    support, member = uneven(30)
    for rows in (torch.zeros_like(support), support[:, :1].expand_as(support)):
        found = leave_each_out(fit_whitening(rows, member), rows, member)
        assert torch.isfinite(found.distances).all()
        assert (found.distances >= 0).all()
