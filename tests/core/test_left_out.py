"""Leave-one-out distances in closed form against a whitening that is fitted again without the sample."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from unem.core import left_out as module
from unem.core.left_out import leave_each_out
from unem.core.whitening import class_means, fit_whitening


def uneven(features, sizes=(5, 3, 1, 7), seed=0, dtype=torch.float64):
    """Two tasks of the same sizes, in different orders, the second one with a row that is no sample."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = torch.stack([labels[torch.randperm(len(labels), generator=g)] for _ in range(2)])
    centres = torch.randn(2, len(sizes), features, generator=g, dtype=dtype)
    support = torch.stack([c[y] for c, y in zip(centres, labels, strict=True)])
    support = support + torch.randn(support.shape, generator=g, dtype=dtype)
    member = torch.nn.functional.one_hot(labels, len(sizes)).to(dtype)
    member[1, 0] = 0
    return support, member


def fitted_again(x, member, i, ridge):
    """Distances of sample i to means, and in a metric, of the others; scaled and centred as with it."""
    keep = [j for j in range(len(x)) if j != i and member[j].sum() > 0]
    others, y = x[keep], member[keep]
    freedom = member.sum() - (member.sum(0) > 0).sum()
    r = others - y @ class_means(others, y)
    metric = torch.linalg.inv(r.T @ r / freedom + ridge * torch.eye(x.shape[1], dtype=x.dtype))
    root = torch.linalg.cholesky(metric)
    return (normalize(x[i] @ root, dim=-1) - class_means(normalize(others @ root, dim=-1), y)).square().sum(-1)


@pytest.mark.parametrize("features", [6, 30])  # fewer and more than there are samples
def test_distances_are_those_of_a_second_fit(features):
    support, member = uneven(features)
    whitening, _, residuals = fit_whitening(support, member)
    found = leave_each_out(residuals, support, member)
    x = whitening._placed(support)
    sizes = member.sum(1)
    assert torch.equal(found.mask.sum(1), (sizes * (sizes > 1)).sum(1).long())  # the only one of its class cannot be
    for task in range(2):
        for place, i in enumerate(found.rows[task].tolist()):
            if found.mask[task, place]:
                expected = fitted_again(x[task], member[task], i, residuals.ridge[task])
                there = torch.arange(4) != (2 if member[task, :, 2].sum() == 0 else 9)
                torch.testing.assert_close(found.distances[task, place][there], expected[there], rtol=0, atol=1e-9)
                assert member[task, i].argmax() == found.labels[task, place]


def test_order_does_not_matter():
    support, member = uneven(30)
    turned = torch.randperm(support.shape[1], generator=torch.Generator().manual_seed(3))
    a = leave_each_out(fit_whitening(support, member)[2], support, member)
    b = leave_each_out(fit_whitening(support[:, turned], member[:, turned])[2], support[:, turned], member[:, turned])
    torch.testing.assert_close(a.distances * a.mask.unsqueeze(-1), b.distances * b.mask.unsqueeze(-1))
    assert torch.equal(turned[b.rows][b.mask], a.rows[a.mask])


def test_many_samples_are_held_out_in_part(monkeypatch):
    support, member = uneven(30)
    residuals = fit_whitening(support, member)[2]
    whole = leave_each_out(residuals, support, member)
    monkeypatch.setattr(module, "MOST", 6)
    some = leave_each_out(residuals, support, member)
    assert some.rows.shape == (2, 6)
    assert len(some.labels[0].unique()) == 4  # of every class
    torch.testing.assert_close(some.distances, whole.distances[:, :6])
    monkeypatch.setattr(module, "MOST_OF_CLASS", 3)
    assert leave_each_out(residuals, support, member).variances.min() >= 1 / 3
