"""Rows that are nearly the same: who stands for whom, against a comparison of all pairs; and numbers of rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.clusters import clusters, permuted
from unem.core import copies as module
from unem.core.copies import FEWEST_FEATURES, first_copies, row_numbers, without_copies

DISTANCE = 1e-3


def burst(groups, features=12, blur=1e-3, seed=0, dtype=torch.float64):
    """Rows of which each stands there some times, a little changed; and the group of each."""
    g = torch.Generator().manual_seed(seed)
    of = torch.arange(len(groups)).repeat_interleave(torch.tensor(groups))
    rows = torch.randn(len(groups), features, generator=g, dtype=dtype)[of]
    rows = rows + blur * torch.randn(rows.shape, generator=g, dtype=dtype)
    order = torch.randperm(len(of), generator=g)
    return rows[order].unsqueeze(0), of[order]


def first_of(rows, mask=None):
    mask = torch.ones_like(rows @ rows.mT) if mask is None else mask
    return first_copies(rows, mask, DISTANCE)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=9), st.sampled_from([0.0, 1e-4, 1e-3]), st.integers(0, 99))
def test_one_row_of_each_group_stands_for_it(groups, blur, seed):
    rows, of = burst(groups, blur=blur, seed=seed)
    first = first_of(rows)[0]
    assert torch.equal(of[first], of)
    assert len(first.unique()) == len(groups)
    assert torch.equal(first[first], first)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=6), st.floats(1e-4, 0.3), st.integers(0, 99))
def test_copies_are_pairs_that_are_near(groups, blur, seed):
    """In directions at random, which keep distances but for a factor: whoever stands for a row is near it; and a row
    that nothing is near stands for itself."""
    rows, _ = burst(groups, blur=blur, seed=seed)
    x = torch.nn.functional.normalize(rows[0], dim=-1).numpy()
    x = x - x.mean(0)
    squared = ((x[:, None] - x[None]) ** 2).sum(-1) / (x**2).sum(-1).mean()
    first = first_of(rows)[0].numpy()
    assert (squared[np.arange(len(x)), first] < 5 * DISTANCE).all()
    alone = (squared < 5 * DISTANCE).sum(1) == 1
    assert (first[alone] == np.arange(len(x))[alone]).all()


@given(st.integers(0, 99))
def test_rows_that_cannot_be_copies_are_none(seed):
    """And rows without any are none at all, nor do they say how far apart rows are."""
    rows, _ = burst([2, 3, 1, 4], seed=seed)
    mask = torch.ones(1, 10, 10, dtype=torch.float64)
    mask[:, :5, 5:] = mask[:, 5:, :5] = 0
    first = first_of(rows, mask)[0]
    assert (first[:5] < 5).all()
    assert (first[5:] >= 5).all()
    there = torch.tensor([1.0] * 10 + [0.0] * 4, dtype=torch.float64)
    for rubbish in (rows[:, :4], 1e3 * rows[:, :4] + 7, torch.zeros_like(rows[:, :4])):
        wide = torch.cat([rows, rubbish], 1)
        assert torch.equal(first_of(wide, there * there.unsqueeze(1).unsqueeze(0))[0, :10], first_of(rows)[0])


@given(st.lists(st.integers(1, 5), min_size=2, max_size=6), st.integers(0, 99))
def test_who_stands_for_copies_does_not_depend_on_the_order(groups, seed):
    rows, _ = burst(groups, seed=seed)
    turned = permuted(rows.shape[1], seed)
    plain, again = first_of(rows)[0], first_of(rows[:, turned])[0]
    assert torch.equal(turned[again], plain[turned])


@given(st.floats(1e-4, 1e4))
def test_the_unit_of_the_features_does_not_matter(unit):
    rows, _ = burst([3, 1, 2, 4])
    assert torch.equal(first_of(unit * rows), first_of(rows))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("blur", "copies"), [(0.01, True), (0.1, False)])
def test_how_near_a_copy_is(blur, copies, seed):
    """Squared, over the mean distance from the centre: 2 blur² on average."""
    rows, of = burst([2] * 8, features=400, blur=blur, seed=seed)
    assert len(first_of(rows)[0].unique()) == (len(of.unique()) if copies else len(of))


def test_of_few_features_rows_are_near_by_chance():
    rows, of = burst([3, 3], features=FEWEST_FEATURES - 1, blur=0.0)
    assert torch.equal(first_of(rows)[0], torch.arange(len(of)))
    rows, _ = burst([3, 3], features=FEWEST_FEATURES, blur=0.0)
    assert len(first_of(rows)[0].unique()) == 2


def test_tasks_of_a_batch_do_not_matter_to_each_other():
    parts = [burst([3, 1, 2], seed=seed)[0] for seed in (0, 1)]
    together = first_of(torch.cat(parts))
    for i, part in enumerate(parts):
        assert torch.equal(together[i], first_of(part)[0])


# -- labelled samples --------------------------------------------------------------------------------------------------


def test_copies_within_a_class_are_no_samples():
    made = clusters(2, classes=3, shots=[4, 2, 1])
    support = made.support.clone()
    support[:, 1:4] = support[:, :1]  # the first class is one photograph, four times
    found = without_copies(support, made.member, DISTANCE)
    assert found.sum(1).tolist() == [[1.0, 2.0, 1.0]] * 2
    assert ((found == made.member) | (found == 0)).all()


def test_the_same_row_in_two_classes_is_a_sample_of_both():
    made = clusters(1, classes=2, shots=3)
    support = made.support.clone()
    support[:, 3] = support[:, 0]
    assert torch.equal(without_copies(support, made.member, DISTANCE), made.member)


def test_what_differs_is_kept():
    made = clusters(3, classes=4, shots=6)
    assert torch.equal(without_copies(made.support, made.member, DISTANCE), made.member)


def test_padding_is_no_sample_and_stands_for_none():
    """Wherever its rows lie: far off, or on a sample."""
    made = clusters(1, classes=3, shots=4)
    support = made.support.clone()
    support[:, 1] = support[:, 0]
    plain = without_copies(support, made.member, DISTANCE)
    for rubbish in (torch.zeros_like(support), 1e3 * torch.ones_like(support), support):
        found = without_copies(
            torch.cat([support, rubbish], 1), torch.cat([made.member, torch.zeros_like(made.member)], 1), DISTANCE
        )
        assert torch.equal(found[:, :12], plain)
        assert not found[:, 12:].any()


def test_a_common_vector_does_not_hide_or_make_copies():
    """Features may lie far off the origin; single precision."""
    made = clusters(1, classes=3, shots=4, dtype=torch.float32)
    support = made.support.clone()
    support[:, 1] = support[:, 0]
    for rows in (support, support + 100):
        assert without_copies(rows, made.member, DISTANCE).sum() == 11


def test_very_many_samples_are_not_compared(monkeypatch):
    monkeypatch.setattr(module, "MOST", 11)
    made = clusters(1, classes=3, shots=4)
    support = made.support[:, :1].expand(-1, 12, -1)
    assert torch.equal(without_copies(support, made.member, DISTANCE), made.member)


# -- numbers of rows ---------------------------------------------------------------------------------------------------


def written_out(row):
    """The number of a row, in Python's integers."""

    def wrapped(value):
        value &= (1 << 64) - 1
        return value - (1 << 64) if value >> 63 else value

    def mixed(value):
        value = wrapped((value ^ (value >> 29)) * 0x1B873593CC9E2D51)
        return wrapped(value ^ (value >> 32))

    total = 0
    for place, bits in enumerate(np.asarray(row, dtype=np.float32).view(np.int32).tolist()):
        factor = mixed(wrapped(place * 0x5DEECE66D + 0x2545F4914F6CDD1D)) | 1
        total = wrapped(total + mixed(wrapped(bits + factor)) * factor)
    return mixed(total) & 0x7FFFFFFFFFFFFFFF


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_a_number_is_that_of_whole_numbers(row):
    """On every machine: shards of one set of queries must choose the same rows."""
    assert int(row_numbers(torch.tensor([row]))) == written_out(row)


@given(st.integers(1, 40), st.data())
def test_every_column_counts(features, data):
    row = torch.randn(features, generator=torch.Generator().manual_seed(features))
    column = data.draw(st.integers(0, features - 1))
    other = row.clone()
    other[column] = torch.nextafter(row[column], torch.tensor(torch.inf))
    assert row_numbers(row) != row_numbers(other)
    if features > 1:
        assert row_numbers(row) != row_numbers(row.roll(1))


def test_rows_that_differ_in_one_column_have_numbers_of_their_own():
    rows = torch.ones(1000, 64)
    rows[:, 63] = torch.arange(1000)
    assert len(row_numbers(rows).unique()) == 1000


def test_numbers_do_not_follow_the_values():
    """Of rows that are sorted, the half with the smaller numbers is from everywhere."""
    rows = torch.arange(4000.0).unsqueeze(1).expand(-1, 8) / 1000
    numbers = row_numbers(rows)
    assert (numbers >= 0).all()
    chosen = numbers.argsort()[:2000].double()
    assert chosen.mean().item() == pytest.approx(2000, abs=4 * 4000 / (12 * 2000) ** 0.5)
    for bit in range(63):
        assert ((numbers >> bit) & 1).double().mean().item() == pytest.approx(0.5, abs=0.04)


def test_precision_and_the_batch_do_not_matter():
    rows = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(row_numbers(rows.double()), row_numbers(rows))
    assert torch.equal(row_numbers(rows)[1, 2], row_numbers(rows[1, 2]))
