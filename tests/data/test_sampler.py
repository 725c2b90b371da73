"""The draw: what is drawn is what was asked for, whatever it is drawn with."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem.data.sampler
from helpers.reference import drawn_task
from unem import InputError, Protocol
from unem.data import Sampler


def pool(sizes):
    """Labels in mixed order, so that an image's number says nothing about its class."""
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]


protocols = st.builds(
    Protocol,
    shots=st.integers(1, 4),
    effective_classes=st.one_of(st.integers(1, 4), st.just("all"), st.tuples(st.integers(1, 2), st.integers(2, 4))),
    queries=st.integers(1, 12),
    balance=st.sampled_from(["pooled", "balanced", "dirichlet(0.3)", "dirichlet(5)"]),
    overlap=st.booleans(),
)


@given(
    protocol=protocols,
    sizes=st.lists(st.integers(16, 30), min_size=4, max_size=8),
    other=st.booleans(),
    seed=st.integers(-(2**66), 2**66),
    first=st.integers(0, 50),
)
def test_every_draw_is_what_was_asked_for(protocol, sizes, other, seed, first):
    labels = pool(sizes)
    query_labels = pool(list(reversed(sizes))) if other else None
    sampler = Sampler(protocol, labels, query_labels, seed=seed)
    draw = sampler.draw(first, 6)
    classes = len(sizes)
    images = labels if query_labels is None else query_labels
    assert (labels[draw.support_index] == draw.support_labels).all()
    assert (images[draw.query_index] == draw.query_labels).all()
    wanted = protocol.effective_classes
    low, high = (classes, classes) if wanted == "all" else wanted if isinstance(wanted, tuple) else (wanted, wanted)
    for support, support_labels, query, query_class in zip(
        draw.support_index, draw.support_labels, draw.query_index, draw.query_labels, strict=True
    ):
        assert len(set(support.tolist())) == classes * protocol.shots
        assert torch.bincount(support_labels, minlength=classes).eq(protocol.shots).all()
        assert len(set(query.tolist())) == protocol.queries
        if not other and not protocol.overlap:
            assert not set(support.tolist()) & set(query.tolist())
        present = torch.bincount(query_class, minlength=classes)
        present = present[present > 0]
        assert len(present) <= high
        if protocol.balance == "balanced":
            assert min(low, protocol.queries) <= len(present)
            assert present.max() - present.min() <= 1


@given(protocol=protocols, seed=st.integers(0, 2**40), batch=st.integers(1, 9))
def test_tasks_do_not_depend_on_the_batch(protocol, seed, batch):
    sampler = Sampler(protocol, pool([20, 17, 25, 30, 18]), seed=seed)
    whole = sampler.draw(0, 9)
    parts = [sampler.draw(i, min(batch, 9 - i)) for i in range(0, 9, batch)]
    for name in ("support_index", "support_labels", "query_index", "query_labels"):
        assert torch.equal(torch.cat([getattr(p, name) for p in parts]), getattr(whole, name))


def test_seeds_differ():
    draws = [Sampler(Protocol(), pool([100] * 20), seed=s).draw(0, 5).query_index for s in (0, 1, 2**40, -1)]
    assert all(not torch.equal(a, b) for i, a in enumerate(draws) for b in draws[:i])


def test_images_and_classes_are_drawn_evenly():
    labels = pool([40] * 10)
    draw = Sampler(Protocol(shots=2, effective_classes=3, queries=9), labels).draw(0, 4000)
    share = torch.bincount(draw.query_labels.flatten(), minlength=10) / draw.query_labels.numel()
    assert (share - 0.1).abs().max() < 0.01
    count = torch.bincount(draw.support_index.flatten(), minlength=400).float()
    assert (count - 200).abs().max() < 6 * 200**0.5  # each image is support in 4000·2/40 tasks, binomially


def test_pooled_proportions_follow_class_sizes():
    draw = Sampler(Protocol(1, 2, 20), pool([30, 90])).draw(0, 2000)
    assert abs((draw.query_labels == 1).double().mean() - 89 / 118) < 0.01


def test_dirichlet_concentration_controls_imbalance():
    def largest_share(concentration):
        draw = Sampler(Protocol(1, 4, 40, balance=f"dirichlet({concentration})"), pool([60] * 6)).draw(0, 500)
        counts = torch.stack([torch.bincount(q, minlength=6) for q in draw.query_labels])
        return (counts.max(1).values / 40).mean()

    assert largest_share(0.1) > 0.8
    assert largest_share(1000) < 0.3


def test_the_published_draw_overlaps_and_ours_does_not():
    """Published share of leaked queries at 5 shots of 60 images a class: 5/60."""
    labels = pool([60] * 50)
    for overlap, expected in ((True, 5 / 60), (False, 0.0)):
        draw = Sampler(Protocol(overlap=overlap), labels).draw(0, 200)
        shared = [
            len(set(s.tolist()) & set(q.tolist())) / 75
            for s, q in zip(draw.support_index, draw.query_index, strict=True)
        ]
        assert abs(sum(shared) / 200 - expected) < 0.01


def test_small_classes_are_drawn_again():
    labels = pool([6] * 30 + [80, 90])
    draw = Sampler(Protocol(shots=2, effective_classes=3, queries=70), labels).draw(0, 300)
    assert ((draw.query_labels >= 30).any(1)).all()
    assert len(draw.query_labels.unique()) > 10  # not always the same classes


def test_a_single_possible_choice_is_found():
    """Two of 200 classes hold the queries only together: chance alone would need 20,000 attempts a task."""
    labels = pool([3] * 200 + [40, 40])
    draw = Sampler(Protocol(shots=2, effective_classes=2, queries=76), labels).draw(0, 50)
    assert set(draw.query_labels.unique().tolist()) == {200, 201}


@pytest.mark.parametrize(
    ("protocol", "sizes", "message"),
    [
        (Protocol(shots=5), [5, 4, 9], r"shots: expected at least 5 .* class 1 has 4"),
        (
            Protocol(shots=2, effective_classes=2, queries=75),
            [20, 20, 20],
            r"queries: 75 were asked for from 2 effective",
        ),
        (
            Protocol(shots=2, effective_classes=2, queries=30, balance="balanced"),
            [60, 10, 10],
            r"at least 15 images each",
        ),
        (Protocol(shots=2, effective_classes=4), [90, 90, 90], r"effective_classes: 4 were asked for, but only 3"),
        (Protocol(shots=3, effective_classes=1, queries=1), [3, 3], r"no class has an image left"),
        (Protocol(shots=1, query_classes=(0, 7)), [90, 90], r"query_classes: expected classes in 0 … 1"),
    ],
)
def test_impossible_protocols_say_why(protocol, sizes, message):
    with pytest.raises(InputError, match=message):
        Sampler(protocol, pool(sizes))


def test_query_classes_restrict_the_effective_ones():
    protocol = Protocol(shots=2, effective_classes=3, query_classes=range(0, 20, 2))
    draw = Sampler(protocol, pool([60] * 20)).draw(0, 50)
    assert (draw.query_labels % 2 == 0).all()
    assert draw.support_labels.unique().tolist() == list(range(20))


def test_a_tiny_concentration_gives_one_class():
    draw = Sampler(Protocol(1, 4, 40, balance="dirichlet(0.001)"), pool([60] * 6)).draw(0, 500)
    largest = torch.stack([torch.bincount(q, minlength=6).max() for q in draw.query_labels])
    assert (largest == 40).float().mean() > 0.97
    assert largest.min() > 10  # never the balanced draw of an underflow


@pytest.mark.parametrize(
    ("protocol", "first", "support", "query"),
    [
        (
            Protocol(1, 2, 6),
            5,
            [[3, 7, 16, 39], [3, 5, 29, 31]],
            [[6, 4, 13, 1, 0, 9], [21, 27, 4, 1, 25, 15]],
        ),
        (
            Protocol(2, (1, 3), 6, "balanced"),
            9,
            [[4, 3, 6, 12, 20, 26, 38, 31], [3, 1, 5, 13, 26, 16, 35, 31]],
            [[5, 13, 7, 8, 10, 11], [30, 33, 34, 39, 37, 38]],
        ),
        (
            Protocol(1, 3, 6, "dirichlet(0.5)"),
            0,
            [[1, 5, 18, 32], [2, 8, 28, 36]],
            [[7, 19, 25, 16, 21, 27], [33, 18, 31, 21, 5, 16]],
        ),
        (
            Protocol(2, 2, 14, overlap=True),
            3,
            [[3, 0, 6, 12, 20, 26, 33, 37], [3, 0, 9, 8, 20, 22, 35, 32]],
            [
                [12, 38, 37, 9, 30, 35, 10, 7, 6, 32, 36, 5, 39, 34],
                [7, 10, 5, 13, 9, 4, 6, 1, 0, 3, 12, 8, 11, 2],
            ],
        ),
        (
            Protocol(1, 2, 6, "balanced", overlap=True, query_classes=(0, 1, 3)),
            2,
            [[4, 5, 21, 35], [3, 6, 20, 33]],
            [[2, 1, 8, 9, 4, 6], [9, 10, 1, 2, 13, 3]],
        ),
    ],
)
def test_draws_stay_what_they_were(protocol, first, support, query):
    """Published figures name their tasks by a seed. These draws were made by version 0.1."""
    labels = torch.arange(4).repeat_interleave(torch.tensor([5, 9, 16, 10]))
    draw = Sampler(protocol, labels, seed=11).draw(first, 2)
    assert draw.support_index.tolist() == support
    assert draw.query_index.tolist() == query


@given(
    protocol=st.builds(
        Protocol,
        shots=st.integers(1, 3),
        effective_classes=st.integers(1, 3),
        queries=st.integers(1, 9),
        balance=st.sampled_from(["pooled", "balanced"]),
        overlap=st.booleans(),
    ),
    sizes=st.lists(st.integers(3, 14), min_size=3, max_size=5),
    seed=st.integers(-(2**66), 2**66),
    first=st.integers(0, 2**40),
)
def test_draws_are_those_of_plain_loops(protocol, sizes, seed, first):
    labels = pool(sizes)
    try:
        draw = Sampler(protocol, labels, seed=seed).draw(first, 3)
    except InputError:
        return
    for i in range(3):
        expected = drawn_task(protocol, labels.tolist(), seed, first + i)
        assert (draw.support_index[i].tolist(), draw.query_index[i].tolist()) == expected


@given(protocol=protocols, chunk=st.integers(1, 300))
def test_chunks_do_not_matter(protocol, chunk):
    sampler = Sampler(protocol, pool([20, 17, 25, 30, 18]))
    whole = sampler.draw(3, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unem.data.sampler, "CPU_CHUNK", chunk)
        parts = sampler.draw(3, 8)
    for name in ("support_index", "support_labels", "query_index", "query_labels"):
        assert torch.equal(getattr(parts, name), getattr(whole, name))


@given(protocol=protocols, sizes=st.lists(st.integers(5, 20), min_size=4, max_size=8))
def test_draws_are_asked_again_only_where_it_can_matter(protocol, sizes):
    """Where the sampler knows beforehand that every choice suffices, every choice does."""
    try:
        sampler = Sampler(protocol, pool(sizes))
    except InputError:
        return
    if sampler._any_choice_suffices:
        number, classes = sampler._draw_classes(torch.arange(50), attempt=0)
        assert sampler._enough(classes, sampler._present(number)).all()


@given(protocol=protocols)
def test_tasks_are_drawn_where_the_sampler_is(protocol):
    """Nothing of a draw is left to the default device; "meta" holds no numbers, so it could not go unnoticed."""
    sampler = Sampler(protocol, pool([20, 17, 25, 30, 18]))
    expected = sampler.draw(0, 4)
    with torch.device("meta"):
        draw = sampler.draw(0, 4)
    assert torch.equal(draw.query_index, expected.query_index)
    assert torch.equal(draw.support_index, expected.support_index)
