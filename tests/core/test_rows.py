"""Rows of a table are what they would be if they were gathered first."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unem.core.rows import Rows

TABLE = torch.arange(24.0).view(8, 3)


@st.composite
def pairs(draw):
    """The same samples as rows of a table and as a tensor; twelve of each task, some more than once."""
    tasks = draw(st.integers(1, 4))
    numbers = st.lists(st.integers(0, 7), min_size=12 * tasks, max_size=12 * tasks)
    index = torch.tensor(draw(numbers)).view(tasks, 12)
    return Rows(TABLE, index), Rows(TABLE[index])


@given(pairs())
def test_rows_are_their_samples(pair):
    rows, dense = pair
    assert rows.shape == dense.shape == tuple(dense.table.shape)
    assert torch.equal(rows.gathered(), dense.gathered())
    assert torch.equal(rows[:1].gathered(), dense[:1].gathered())
    for each in pair:
        table, index = each.indexed()
        assert torch.equal(table[index], dense.table)


@given(pairs(), st.sampled_from([1, 3, 4]), st.booleans())
def test_sums_of_consecutive_samples(pair, count, weighted):
    dense = pair[1]
    weights = torch.rand(dense.table.shape[:2]) if weighted else None
    samples = dense.table if weights is None else weights.unsqueeze(-1) * dense.table
    expected = samples.view(len(samples), 12 // count, count, 3).sum(2)
    for each in pair:
        torch.testing.assert_close(each.sum_consecutive(count, weights), expected)


@given(pairs(), st.booleans())
def test_a_function_of_rows_is_that_of_the_samples(pair, keep):
    for rows in pair:
        torch.testing.assert_close(rows.map(torch.square, keep=keep).gathered(), pair[1].table.square())


def test_a_kept_function_is_computed_once_for_the_table():
    calls = []

    def double(x):
        calls.append(tuple(x.shape))
        return 2 * x

    rows = Rows(TABLE)
    few = Rows(TABLE, torch.tensor([[0, 1, 2]]), rows.cache)
    for _ in range(4):
        torch.testing.assert_close(few.map(double, keep=True).gathered(), 2 * few.gathered())
    assert calls == [(1, 3, 3), (1, 3, 3), (8, 3)]  # the third request reaches the eight rows of the table
    other = few.at(torch.tensor([[7]]))
    assert other.map(double, keep=True).gathered().tolist() == [[[42.0, 44.0, 46.0]]]
    assert len(calls) == 3


@pytest.mark.parametrize("keep", [True, False])
def test_gradients_reach_the_table(keep):
    table = TABLE.clone().requires_grad_()
    Rows(table, torch.tensor([[0, 0, 3]])).map(torch.square, keep=keep).gathered().sum().backward()
    expected = torch.zeros(8, 3)
    expected[0], expected[3] = 4 * TABLE[0], 2 * TABLE[3]
    torch.testing.assert_close(table.grad, expected)
