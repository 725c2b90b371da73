"""Everything a user can hand in wrongly is refused with a sentence that names it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
import unem.core.task
from unem import InputError, Task
from unem.core.task import check_finite

SUPPORT, LABELS, QUERY = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]), torch.randn(5, 4)


def nan_at(tensor, *index):
    changed = tensor.clone()
    changed[index] = float("nan")
    return changed


@pytest.mark.parametrize(
    ("support", "labels", "query", "message"),
    [
        (nan_at(SUPPORT, 2, 1), LABELS, QUERY, r"support: 1 of 24 values are NaN or infinite, the first at"),
        (SUPPORT, LABELS, QUERY * float("inf"), r"query: 20 of 20 values are NaN or infinite"),
        (SUPPORT, LABELS, QUERY * 1e30, r"query: values reach .*, too large to be squared in torch.float32"),
        (SUPPORT, LABELS[:5], QUERY, r"support_labels: expected one label per support sample"),
        (SUPPORT, LABELS, QUERY[:, :3], r"support has 4 features per sample and query 3"),
        (SUPPORT, LABELS, QUERY[:0], r"query: no query samples"),
        (SUPPORT[:0], LABELS[:0], QUERY, r"support: no samples"),
        (SUPPORT, LABELS.float(), QUERY, r"support_labels: expected integer class indices, got torch.float32"),
        (SUPPORT, torch.tensor([0, 0, 1, 1, 3, 3]), QUERY, r"class 2 has no support sample in task 0"),
        (SUPPORT, LABELS - 2, QUERY, r"support_labels: expected values in 0 … 0"),
        (SUPPORT, LABELS + 2**40, QUERY, r"class 0 has no support sample in task 0; each of the 1099511627779 classes"),
        (SUPPORT, torch.tensor([0, 0, 1, 1, 2, 2**63 - 1]), QUERY, r"class 3 has no support sample in task 0"),
        (SUPPORT.to_sparse(), LABELS, QUERY, r"support: expected a dense tensor, got one of layout torch.sparse_coo"),
        (SUPPORT, LABELS, QUERY.to("meta"), r"query: expected a dense tensor, got one without data"),
        (SUPPORT, LABELS.to_sparse(), QUERY, r"support_labels: expected a dense tensor"),
        (SUPPORT, torch.full((6,), -1), QUERY, r"every row is padding"),
        (SUPPORT, LABELS, QUERY.double(), r"support is torch.float32 and query torch.float64"),
        (SUPPORT, LABELS, QUERY[0], r"query: expected \[task, query, feature\]"),
        (SUPPORT.unsqueeze(0), LABELS, QUERY, r"query is a single task"),
        (SUPPORT.repeat(2, 1, 1), LABELS.repeat(2, 1), QUERY.repeat(3, 1, 1), r"support holds 2 tasks and query 3"),
        (SUPPORT, LABELS, "text", r"query: expected a numeric tensor"),
        (SUPPORT.to(torch.complex64), LABELS, QUERY, r"support: expected real numbers"),
        (SUPPORT, "abc", QUERY, r"support_labels: expected integers"),
    ],
)
def test_bad_input_is_named(support, labels, query, message):
    with pytest.raises(InputError, match=message):
        Task(support, labels, query)


@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    bad=st.dictionaries(st.integers(0, 124), st.sampled_from([float("nan"), float("inf"), -float("inf")]), max_size=4),
    transposed=st.booleans(),
    piece=st.integers(1, 30),
)
def test_values_that_are_not_finite_are_counted_and_the_first_is_named(shape, bad, transposed, piece):
    tensor = torch.zeros(shape)
    for place, value in bad.items():
        if place < tensor.numel():
            tensor.view(-1)[place] = value
    tensor = tensor.permute(tuple(reversed(range(tensor.ndim)))) if transposed else tensor
    where = (~torch.isfinite(tensor)).nonzero().tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unem.core.task, "CHECKED_AT_ONCE", piece)
        if not where:
            check_finite(tensor, "x")
            return
        with pytest.raises(InputError) as error:
            check_finite(tensor, "x")
    message = f"x: {len(where)} of {tensor.numel()} values are NaN or infinite, the first at {tuple(where[0])}; "
    assert str(error.value) == message + "finite features were expected"


@pytest.mark.parametrize("value", [3e20, -3e20])
def test_values_too_large_to_be_squared(value):
    with pytest.raises(
        InputError, match=r"^x: values reach 3\.0e\+20, .* in torch.float32; expected magnitudes below 2e\+15"
    ):
        check_finite(torch.tensor([1.0, value]), "x")


def test_a_support_without_padding_is_not_copied():
    task = Task(SUPPORT.unsqueeze(0), LABELS.unsqueeze(0), QUERY.unsqueeze(0))
    assert task.support.data_ptr() == SUPPORT.data_ptr()
    with pytest.raises(InputError, match=r"support: 1 of 48 values are NaN or infinite, the first at \(8, 1\)"):
        Task(nan_at(SUPPORT.repeat(2, 1, 1), 1, 2, 1), LABELS.repeat(2, 1), QUERY.repeat(2, 1, 1))


def test_padding_may_hold_anything():
    task = Task(nan_at(SUPPORT, 1), torch.tensor([0, -1, 1, 1, 2, 2]), QUERY)
    assert torch.isfinite(task.support).all()


def test_missing_class_is_named_by_its_name():
    with pytest.raises(InputError, match=r"class 3 \('zebra'\) has no support sample"):
        Task(SUPPORT, LABELS, QUERY, class_names=["ape", "bee", "cat", "zebra"])


def test_label_beyond_num_classes():
    with pytest.raises(InputError, match=r"expected values in 0 … 1"):
        Task(SUPPORT, LABELS, QUERY, num_classes=2)


def test_arrays_lists_and_half_precision_are_taken():
    task = Task(SUPPORT.numpy().astype(np.float16), LABELS.tolist(), QUERY.half())
    assert task.query.dtype == torch.float32
    assert Task([[1, 2]], [0], [[3, 4]]).query.dtype == torch.float32


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=6), tasks=st.integers(1, 3), seed=st.integers(0, 1000))
def test_ragged_supports(counts, tasks, seed):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).expand(tasks, -1)
    g = torch.Generator().manual_seed(seed)
    support = torch.randn(tasks, sum(counts), 3, generator=g)
    task = Task(support, labels, torch.randn(tasks, 2, 3, generator=g))
    assert task.shots.tolist() == [counts] * tasks
    sums = task.sum_by_class(support)
    for k in range(len(counts)):
        torch.testing.assert_close(sums[:, k], support[labels == k].view(tasks, -1, 3).sum(1))


def test_stack_pads_and_refuses_what_does_not_fit():
    one = Task(SUPPORT, LABELS, QUERY)
    two = Task(SUPPORT[::2], LABELS[::2], QUERY)
    both = Task.stack([one, two])
    assert both.shots.tolist() == [[2, 2, 2], [1, 1, 1]]
    schedule = unem.Schedule(2.0, 1.1)
    together = unem.gem(both, unem.Gaussian(), schedule).probabilities
    for i, task in enumerate((one, two)):
        torch.testing.assert_close(together[i], unem.gem(task, unem.Gaussian(), schedule).probabilities)
    with pytest.raises(InputError, match="number of queries differs"):
        Task.stack([one, Task(SUPPORT, LABELS, QUERY[:2])])
    with pytest.raises(InputError, match="got none"):
        Task.stack([])


def test_iterating_over_tasks_ends():
    task = Task(SUPPORT.repeat(3, 1, 1), LABELS.repeat(3, 1), QUERY.repeat(3, 1, 1))
    assert [len(t) for t in task] == [1, 1, 1]
    assert len(task[-2]) == 1
    with pytest.raises(IndexError):
        task[3]


def test_text_beside_images():
    text = torch.randn(3, 4)
    task = Task(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]), torch.randn(5, 4), text=text)
    torch.testing.assert_close(task.text, torch.nn.functional.normalize(text, dim=-1))
    assert task.to(torch.float64).text.dtype == torch.float64
    assert task[0].text is not None
    with pytest.raises(InputError, match="text: expected one embedding per class"):
        Task(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]), torch.randn(5, 4), text=torch.randn(2, 4))


def test_tasks_with_other_texts_are_not_stacked():
    one, two = (Task(SUPPORT, LABELS, QUERY, text=torch.randn(3, 4)) for _ in range(2))
    assert Task.stack([one, one]).text is not None
    with pytest.raises(InputError, match="class texts differ"):
        Task.stack([one, two])


def test_a_number_of_classes_that_the_rows_cannot_fill_takes_no_memory():
    with pytest.raises(InputError, match="class 3 has no support sample in task 0; each of the 1099511627776 classes"):
        Task(SUPPORT, LABELS, QUERY, num_classes=2**40)


def test_rows_in_reverse_order_are_taken():
    rows = SUPPORT.numpy()[::-1]
    torch.testing.assert_close(Task(rows, LABELS, QUERY).support[0], SUPPORT.flip(0))
