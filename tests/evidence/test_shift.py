"""Offsets of the queries: nothing on queries of the support's kind, nearly all of a large one, and never the part that
class proportions could explain."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from helpers.clusters import clusters, permuted
from unem.evidence import Numbers, fit_tasks
from unem.evidence.shift import DomainShift, span_inverse


def unit(rows):
    return torch.nn.functional.normalize(rows, dim=-1)


def shifted(made, size, seed=5):
    """Queries of which all have a vector added that is orthogonal to class means, in units of a row's mean length."""
    means = torch.stack([made.support[:, made.labels[0] == k].mean(1) for k in range(made.classes)], 1)
    g = torch.Generator().manual_seed(seed)
    vector = torch.randn(len(means), 1, means.shape[2], generator=g, dtype=means.dtype)
    basis = torch.linalg.qr(means.mT).Q
    vector = unit(vector - vector @ basis @ basis.mT)
    return dataclasses.replace(made, query=made.query + size * made.query.norm(dim=-1).mean() * vector)


def share_of(made, size=0.0, **settings):
    moved = shifted(made, size)
    shift = DomainShift.fit(moved.support, moved.member, Numbers(**settings))
    return shift.of(moved.query, torch.ones_like(moved.query[..., :1]))[1]


@pytest.mark.parametrize("factor", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("truth", [None, torch.arange(20) % 4, torch.tensor([1] * 17 + [0, 2, 3])])
def test_the_offset_is_its_formula(truth, factor):
    made = shifted(clusters(1, 4, [1, 2, 5, 4], 20, truth=truth), 0.7)
    x, z, y = unit(made.support)[0].numpy(), unit(made.query)[0].numpy(), made.labels[0].numpy()
    means = np.stack([x[y == k].mean(0) for k in range(4)])
    centre = means.mean(0)
    between = ((means - centre) ** 2).sum() / 3
    spread = sum(((x[y == k] - means[k]) ** 2).sum() for k in range(4)) / (12 - 4)
    vector = z.mean(0) - centre
    basis = np.linalg.svd(means - centre)[2][:3]
    vector = vector - basis.T @ (basis @ vector)
    of_mean = spread * np.mean([1, 1 / 2, 1 / 5, 1 / 4])
    nearest = ((z[:, None] - means) ** 2).sum(-1).argmin(-1)
    unequal = max(0, ((np.bincount(nearest, minlength=4) / 20) ** 2).sum() - 1 / 4)
    error = spread / 20 + of_mean / 4 + factor * unequal * of_mean * (1 - of_mean / between)
    share = 1 - error / (vector**2).sum()
    assert 0 < share < 1
    shift = DomainShift.fit(made.support, made.member, Numbers(offset_error=factor))
    offset, found = shift.of(made.query, torch.ones_like(made.query[..., :1]))
    assert found.item() == pytest.approx(share, rel=1e-4)
    np.testing.assert_allclose(offset[0, 0].numpy(), share * vector, atol=1e-5)


@pytest.mark.parametrize("shots", [3, 10])
@pytest.mark.parametrize("present", [3, 6, 20])
def test_without_an_offset_there_is_none_whatever_the_proportions(shots, present):
    shares = share_of(clusters(20, 20, shots, 60, features=48, present=present))
    assert shares.mean() < 0.05
    assert (shares == 0).double().mean() > 0.75


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize("present", [1, 2])
def test_queries_of_one_class_or_two_do_not_seem_shifted_by_the_error_of_their_means(shots, present):
    """As they would, were the error reckoned as for even numbers."""
    made = clusters(40, 20, shots, 60, features=48, present=present, noise=1.6)
    shares, plain = share_of(made), share_of(made, offset_error=0.0)
    assert plain.mean() > 0.1
    assert shares.mean() < 0.5 * plain.mean()
    assert shares.mean() < 0.1
    assert (shares > 0.5).double().mean() < 0.1


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize(("present", "certain"), [(3, 0.7), (6, 0.85)])
def test_a_large_offset_is_certain_where_several_classes_are_present(shots, present, certain):
    made = clusters(10, 6, shots, 60, features=48, truth=torch.arange(60) % present)
    shares = [share_of(made, size).mean() for size in (0.0, 0.5, 1.0, 3.0)]
    assert shares == sorted(shares)
    assert shares[0] < 0.1
    assert shares[-1] > certain


@pytest.mark.parametrize("shots", [1, 5])
def test_of_one_class_a_large_offset_is_less_certain(shots):
    """It may as well be the error of that class' mean; more samples make it smaller."""
    one, all_of_them = (
        [
            share_of(clusters(10, 6, shots, 60, features=48, truth=torch.arange(60) % n), size)
            for size in (0.0, 1.0, 3.0)
        ]
        for n in (1, 6)
    )
    assert [x.mean() for x in one] == sorted(x.mean() for x in one)
    assert one[0].max() < 0.05
    assert (one[1] < all_of_them[1] - 0.2).all()
    assert (one[2] < all_of_them[2] - 0.2).all()
    assert (one[2] > 0).all()


def test_it_is_orthogonal_to_the_differences_of_class_means():
    made = shifted(clusters(3, 5, 4, 30), 1.0)
    shift = DomainShift.fit(made.support, made.member, Numbers())
    offset, _ = shift.of(made.query, torch.ones_like(made.query[..., :1]))
    assert (offset.norm(dim=-1) > 0.3).all()
    assert ((offset @ shift.directions.mT).abs() < 1e-3 * offset.norm(dim=-1, keepdim=True)).all()


def test_few_queries_are_less_certain_than_many():
    made = shifted(clusters(10, 5, 4, 60, features=48), 0.5)
    shift = DomainShift.fit(made.support, made.member, Numbers())
    few, many = (shift.of(made.query[:, :n], torch.ones_like(made.query[:, :n, :1]))[1].mean() for n in (2, 60))
    assert few < many


def test_rows_without_weight_are_no_queries_and_order_does_not_matter():
    made = shifted(clusters(2, 5, 4, 30), 0.7)
    shift = DomainShift.fit(made.support, made.member, Numbers())
    plain = shift.of(made.query, torch.ones_like(made.query[..., :1]))
    padded = torch.cat([made.query, 40 * torch.ones_like(made.query[:, :5])], 1)
    weights = torch.ones_like(padded[..., :1])
    weights[:, 30:] = 0
    turned = permuted(35)
    for found in (shift.of(padded, weights), shift.of(padded[:, turned], weights[:, turned])):
        torch.testing.assert_close(found, plain)


def test_padding_and_the_order_of_samples_and_classes_do_not_matter():
    made = shifted(clusters(2, 5, [1, 2, 3, 4, 5], 30), 0.7)
    one = torch.ones_like(made.query[..., :1])
    plain = DomainShift.fit(made.support, made.member, Numbers()).of(made.query, one)
    support = torch.cat([made.support, 9 * torch.ones_like(made.support[:, :4])], 1)
    member = torch.cat([made.member, torch.zeros_like(made.member[:, :4])], 1)
    rows, columns = permuted(19), permuted(5, 1)
    found = DomainShift.fit(support[:, rows], member[:, rows][..., columns], Numbers()).of(made.query, one)
    torch.testing.assert_close(found, plain)


@pytest.mark.parametrize("support", ["zeros", "copies", "single class", "few features"])
def test_where_little_is_known_it_stays_finite(support):
    made = clusters(2, 3, 2, 5, features=2 if support == "few features" else 12)
    rows, member = made.support, made.member
    if support == "zeros":
        rows = torch.zeros_like(rows)
    if support == "copies":
        rows = rows[:, :1].expand_as(rows)
    if support == "single class":
        member = torch.ones_like(member[..., :1])
    offset, share = DomainShift.fit(rows, member, Numbers()).of(made.query, torch.ones_like(made.query[..., :1]))
    assert torch.isfinite(offset).all()
    assert ((share >= 0) & (share <= 1)).all()


def test_span_inverse_projects_on_a_span():
    """Of vectors whose sum is zero, so that their products have no inverse."""
    g = torch.Generator().manual_seed(0)
    directions = torch.randn(1, 4, 9, generator=g, dtype=torch.float64)
    directions = directions - directions.mean(1, keepdim=True)
    found = directions.mT @ span_inverse(directions @ directions.mT) @ directions
    basis = torch.linalg.svd(directions, full_matrices=False).Vh[:, :3]
    torch.testing.assert_close(found, basis.mT @ basis, rtol=0, atol=1e-4)


# -- in answers --------------------------------------------------------------------------------------------------------


def accuracy(made, numbers=None):
    fitted = fit_tasks(made.support, made.member, numbers=numbers)
    return made.accuracy(fitted.predict(made.query).argmax(-1))


@pytest.mark.parametrize("size", [1.0, 2.0])
@pytest.mark.parametrize("present", [2, 8])
def test_a_large_offset_hardly_changes_the_labels(present, size):
    made = clusters(12, 8, 5, 60, features=48, noise=1.3, present=present)
    assert accuracy(shifted(made, size)) > accuracy(made) - 0.05


def test_labels_are_far_better_than_where_no_offset_is_taken_off():
    made = shifted(clusters(12, 8, 5, 60, features=48, noise=1.3), 2.0)
    assert accuracy(made) > accuracy(made, Numbers(offset_error=1e9)) + 0.15  # whatever there is may be an error


def test_where_there_is_no_offset_looking_for_one_costs_nothing():
    made = clusters(12, 8, 5, 60, features=48, noise=1.3)
    assert accuracy(made) > accuracy(made, Numbers(offset_error=1e9)) - 0.01
