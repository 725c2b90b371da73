"""The fit of a batch of tasks and its views: what must not matter, copies, very many queries, and what is carried."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.clusters import clusters, permuted
from unem.evidence import MOST_TOGETHER, Fitted, FittedTexts, Memory, Numbers, fit_tasks, sample_rows
from unem.evidence import fitted as module

CLOSE = {"rtol": 0, "atol": 1e-7}


def fit_of(made, text=None, numbers=None):
    return fit_tasks(made.support, made.member, text, numbers)


def predict(made, text=None):
    return fit_of(made, text).predict(made.query)


def texts_of(made, noise=0.5):
    g = torch.Generator().manual_seed(7)
    own = made.member[0].mT @ made.support[0]
    return own + noise * torch.randn(own.shape, generator=g, dtype=own.dtype)


def turned(made, seed=0):
    """The same tasks in another order of samples, queries and classes; and these orders."""
    samples, queries, classes = (
        permuted(n, seed + i) for i, n in enumerate((made.labels.shape[1], made.query.shape[1], made.classes))
    )
    places = classes.argsort()
    labels = torch.where(made.labels < 0, made.labels, places[made.labels.clamp_min(0)])
    return (
        dataclasses.replace(
            made, support=made.support[:, samples], labels=labels[:, samples], query=made.query[:, queries]
        ),
        queries,
        classes,
    )


# -- what must not matter ----------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=6),
    st.integers(1, 25),
    st.sampled_from([1, 2, 5, 30]),
    st.booleans(),
    st.integers(0, 999),
)
def test_the_order_of_samples_queries_and_classes_does_not_matter(shots, queries, features, text, seed):
    made = clusters(1, len(shots), shots, queries, features, seed=seed)
    texts = texts_of(made) if text else None
    again, rows, classes = turned(made, seed)
    found = predict(again, None if texts is None else texts[classes])
    torch.testing.assert_close(found, predict(made, texts)[:, rows][..., classes], rtol=0, atol=1e-5)


@pytest.mark.parametrize("features", [8, 60])  # fewer and more than there are samples
@pytest.mark.parametrize("text", [False, True])
def test_a_batch_is_its_tasks_one_by_one(features, text):
    made = clusters(4, 5, [1, 2, 3, 4, 5], 20, features, present=3)
    texts = texts_of(made) if text else None
    together = predict(made, texts)
    for i in range(4):
        one = dataclasses.replace(made, support=made.support[i : i + 1], query=made.query[i : i + 1])
        one = dataclasses.replace(one, labels=made.labels[i : i + 1])
        torch.testing.assert_close(predict(one, texts)[0], together[i], **CLOSE)


@pytest.mark.parametrize("features", [8, 60])
@pytest.mark.parametrize("text", [False, True])
def test_padding_among_the_samples_does_not_matter(features, text):
    made = clusters(2, 4, [1, 2, 5, 3], 20, features)
    padded = dataclasses.replace(
        made,
        support=torch.cat([9 * torch.ones_like(made.support[:, :6]), made.support], 1),
        labels=torch.cat([torch.full_like(made.labels[:, :6], -1), made.labels], 1),
    )
    texts = texts_of(made) if text else None
    torch.testing.assert_close(predict(padded, texts), predict(made, texts), rtol=0, atol=1e-6)


@pytest.mark.parametrize("features", [8, 60])
@pytest.mark.parametrize("value", [0.0, 1.0, -50.0])
def test_rows_without_weight_are_no_queries(features, value):
    made = clusters(2, 4, 4, 20, features, present=2)
    fitted = fit_of(made)
    plain = fitted.view(made.query).probabilities()
    rows = torch.cat([made.query, torch.full_like(made.query[:, :5], value)], 1)
    weights = torch.ones_like(rows[..., :1])
    weights[:, 20:] = 0
    torch.testing.assert_close(fitted.view(rows, weights=weights).probabilities()[:, :20], plain, **CLOSE)


@pytest.mark.parametrize("features", [8, 60])
def test_the_unit_of_the_features_does_not_matter(features):
    made = clusters(2, 4, 4, 20, features)
    scaled = dataclasses.replace(made, support=40 * made.support, query=0.01 * made.query)
    torch.testing.assert_close(predict(scaled), predict(made), **CLOSE)


@pytest.mark.parametrize("features", [8, 24, 100])
@pytest.mark.parametrize("shots", [1, 5, 12])
def test_single_precision_is_close_to_double(features, shots):
    made = clusters(4, 6, shots, 60, features, present=3)
    single = dataclasses.replace(made, support=made.support.float(), query=made.query.float())
    found, expected = predict(single).double(), predict(made)
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01)
    assert (found.argmax(-1) == expected.argmax(-1)).double().mean() > 0.99


def anything(kind):
    made = clusters(2, 4, 3, 9, 12)
    support, query = made.support.clone(), made.query.clone()
    if kind == "one query":
        query = query[:, :1]
    if kind == "single samples":
        return clusters(2, 4, 1, 9, 12)
    if kind == "one class":
        return clusters(2, 1, 3, 9, 12)
    if kind == "one class, one sample, one query":
        return clusters(2, 1, 1, 1, 12)
    if kind == "one feature":
        support, query = support[..., :1], query[..., :1]
    if kind == "zero rows":
        support[:, 0], query[:, 0] = 0, 0
    if kind == "zeros":
        support, query = 0 * support, 0 * query
    if kind == "constant columns":
        support[..., :6], query[..., :6] = 3, 3
    if kind == "all the same":
        support, query = support[:, :1].expand_as(support), support[:, :1].expand_as(query)
    if kind == "classes that coincide":
        support = support[:, :3].repeat(1, 4, 1)
    if kind == "queries are samples":
        query = support
    if kind == "large":
        support, query = 1e6 * support, 1e6 * query
    if kind == "far off":
        support, query = support + 1e4, query + 1e4
    return dataclasses.replace(made, support=support, query=query)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "kind",
    [
        "one query",
        "single samples",
        "one class",
        "one class, one sample, one query",
        "one feature",
        "zero rows",
        "zeros",
        "constant columns",
        "all the same",
        "classes that coincide",
        "queries are samples",
        "large",
        "far off",
    ],
)
def test_there_is_always_an_answer(kind, dtype):
    made = anything(kind)
    made = dataclasses.replace(made, support=made.support.to(dtype), query=made.query.to(dtype))
    for text in (None, torch.ones(made.classes, made.support.shape[-1], dtype=dtype)):
        fitted = fit_of(made, text)
        for answer in (fitted.predict(made.query), fitted.independent(made.query).softmax(-1)):
            assert torch.isfinite(answer).all()
            torch.testing.assert_close(answer.sum(-1), torch.ones(answer.shape[:-1], dtype=dtype), rtol=0, atol=1e-4)


def test_where_classes_coincide_they_are_equally_probable():
    made = anything("classes that coincide")
    torch.testing.assert_close(predict(made), torch.full((2, 9, 4), 0.25, dtype=torch.float64), rtol=0, atol=1e-5)


# -- copies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [12, 60])
def test_a_class_of_one_photograph_copied_is_a_class_of_one(features):
    made = clusters(2, 4, 5, 30, features)
    support = made.support.clone()
    support[:, 5:10] = support[:, 5:6]
    copied = dataclasses.replace(made, support=support)
    keep = [i for i in range(20) if i not in range(6, 10)]
    single = dataclasses.replace(made, support=support[:, keep], labels=made.labels[:, keep])
    assert fit_of(copied).likelihood.counts.tolist() == [[5.0, 1.0, 5.0, 5.0]] * 2
    torch.testing.assert_close(predict(copied), predict(single), rtol=0, atol=1e-6)


@pytest.mark.parametrize("present", [1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_queries_that_are_repeated_get_the_answer_of_unrepeated_ones(present, dtype):
    made = clusters(2, 5, 4, 12, 40, present=present, dtype=dtype)
    fitted = fit_of(made)
    plain = fitted.predict(made.query)
    again = permuted(240)
    rows = made.query.repeat(1, 20, 1)[:, again]
    view = fitted.view(rows)
    torch.testing.assert_close(view.probabilities(), plain.repeat(1, 20, 1)[:, again], rtol=0, atol=1e-4)
    assert view.queries.count.tolist() == [12.0, 12.0]


def test_queries_that_are_nearly_copies_get_one_answer():
    made = clusters(1, 5, 4, 12, 40)
    blurred = made.query + 0.003 * torch.randn(made.query.shape, generator=torch.Generator().manual_seed(0))
    view = fit_of(made).view(torch.cat([made.query, blurred], 1))
    assert view.queries.count.item() == 12
    answer = view.probabilities()
    assert torch.equal(answer[:, :12], answer[:, 12:])


# -- very many queries -------------------------------------------------------------------------------------------------


def few_together(monkeypatch, most):
    monkeypatch.setattr(module, "MOST_TOGETHER", most)
    monkeypatch.setattr(sample_rows, "__defaults__", (most,))


def test_very_many_queries_are_judged_by_what_some_settle_on(monkeypatch):
    made = clusters(1, 8, 5, 600, present=3)
    whole = predict(made)
    few_together(monkeypatch, 300)
    some = predict(made)
    assert (some.argmax(-1) == whole.argmax(-1)).double().mean() > 0.97
    assert made.accuracy(some.argmax(-1)) > made.accuracy(whole.argmax(-1)) - 0.01
    rows = permuted(600)
    again = fit_of(made).predict(made.query[:, rows])
    torch.testing.assert_close(again, some[:, rows], rtol=0, atol=1e-4)


def test_queries_that_are_counted_in_parts_are_counted(monkeypatch):
    made = clusters(1, 6, 5, 300, present=3)
    few_together(monkeypatch, 100)
    whole, alone = predict(made), fit_of(made).independent(made.query)
    monkeypatch.setattr(module, "QUERY_BYTES", 1 << 14)
    assert len(fit_of(made)._parts(made.query)) > 5
    torch.testing.assert_close(predict(made), whole, **CLOSE)
    torch.testing.assert_close(fit_of(made).independent(made.query), alone, **CLOSE)


def test_counts_of_a_sample_stand_for_those_of_all():
    made = clusters(2, 6, 5, 100, present=3)
    fitted = fit_of(made)
    plain, scaled = (fitted.view(made.query, total=total).outcome.settled.counts for total in (None, 1000))
    torch.testing.assert_close(scaled, 10 * plain)
    torch.testing.assert_close(scaled.sum((2, 3)), torch.full((2, 4), 1000.0, dtype=torch.float64))


def test_counts_of_parts_add_up_and_any_part_is_answered_alike():
    """As on several machines."""
    made = clusters(1, 6, 5, 200, present=3)
    fitted = fit_of(made)
    view = fitted.view(made.query[:, ::2], total=200)
    counts = sum(view.count(part) for part in made.query.split(70, 1))
    torch.testing.assert_close(counts, view.count(made.query))
    told = view.with_counts(counts)
    whole = told.answer(made.query)
    torch.testing.assert_close(torch.cat([told.answer(p) for p in made.query.split(33, 1)], 1), whole, **CLOSE)
    assert (whole.argmax(-1) == fitted.predict(made.query).argmax(-1)).double().mean() > 0.97


def test_a_sample_does_not_depend_on_the_order():
    rows = torch.randn(500, 40, generator=torch.Generator().manual_seed(1))
    order = permuted(500)
    assert set(order[sample_rows(rows[order], 50)].tolist()) == set(sample_rows(rows, 50).tolist())
    assert len(sample_rows(rows, 50)) == 50
    assert sorted(sample_rows(rows, 900).tolist()) == list(range(500))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=40), st.integers(1, 30))
def test_of_equal_rows_one_is_in_the_sample(times, most):
    distinct = torch.randn(len(times), 9, generator=torch.Generator().manual_seed(len(times)))
    rows = distinct.repeat_interleave(torch.tensor(times), 0)[permuted(sum(times))]
    chosen = rows[sample_rows(rows, most)]
    assert len(chosen) == min(most, len(times)) == len(chosen.unique(dim=0))
    alone = distinct[sample_rows(distinct, most)]
    assert torch.equal(chosen.unique(dim=0), alone.unique(dim=0))


def test_a_sample_is_from_everywhere():
    """Though rows are sorted, and columns constant."""
    rows = torch.ones(3000, 30)
    rows[:, 17] = torch.arange(3000.0)
    chosen = rows[sample_rows(rows, 600), 17]
    assert chosen.mean().item() == pytest.approx(1500, abs=150)
    assert torch.histc(chosen, 10).min() > 30


def test_as_many_as_are_taken_together_are_one_view(monkeypatch):
    made = clusters(1, 4, 4, 60)
    fitted = fit_of(made)
    few_together(monkeypatch, 60)
    assert torch.equal(fitted.predict(made.query), fitted.view(made.query).probabilities())
    assert MOST_TOGETHER == 2048


# -- given classes -----------------------------------------------------------------------------------------------------


def known_rows(made, count=8):
    known = torch.full(made.truth.shape, -1)
    known[:, :count] = made.truth[:, :count]
    return known


@pytest.mark.parametrize("present", [2, 6])
def test_what_a_person_has_given_is_answered(present):
    """Though all else may speak for another class."""
    made = clusters(10, 6, 3, 40, present=present, noise=1.6)
    known = known_rows(made, 20)
    known[:, :5] = (known[:, :5] + 1) % 6
    answer = fit_of(made).view(made.query, known=known).probabilities()
    assert torch.equal(answer.argmax(-1)[:, :20], known[:, :20])


def test_what_a_person_has_given_helps_with_the_others():
    made = clusters(40, 6, 3, 40, present=2, noise=1.6)
    fitted, known = fit_of(made), known_rows(made, 20)
    plain, given = fitted.view(made.query), fitted.view(made.query, known=known)
    rest = [(v.probabilities().argmax(-1)[:, 20:] == made.truth[:, 20:]).double().mean() for v in (plain, given)]
    assert rest[1] > rest[0] + 0.005


def test_given_classes_do_not_depend_on_the_order():
    made = clusters(2, 5, 3, 30, present=3)
    known, order = known_rows(made), permuted(30)
    fitted = fit_of(made)
    plain = fitted.view(made.query, known=known).probabilities()
    again = fitted.view(made.query[:, order], known=known[:, order]).probabilities()
    torch.testing.assert_close(again, plain[:, order], **CLOSE)


def test_that_nothing_is_given_is_as_if_nobody_were_asked():
    made = clusters(2, 5, 3, 30)
    fitted = fit_of(made)
    nothing = torch.full((2, 30), -1)
    found = fitted.view(made.query, known=nothing).probabilities()
    torch.testing.assert_close(found, fitted.view(made.query).probabilities(), **CLOSE)


def test_one_odd_sample_does_not_drag_its_class_along():
    """Given a wrong class, the others keep theirs."""
    made = clusters(6, 5, 4, 60, noise=0.8, features=40)
    known = torch.full((6, 60), -1)
    known[:, 0] = (made.truth[:, 0] + 1) % 5
    fitted = fit_of(made)
    plain, odd = fitted.predict(made.query).argmax(-1), fitted.view(made.query, known=known).probabilities().argmax(-1)
    assert torch.equal(odd[:, 0], known[:, 0])
    assert (odd[:, 1:] == plain[:, 1:]).double().mean() > 0.98


# -- texts alone -------------------------------------------------------------------------------------------------------


def test_texts_alone_are_hypotheses_on_cosines():
    g = torch.Generator().manual_seed(0)
    text = torch.randn(5, 30, generator=g, dtype=torch.float64)
    truth = torch.randint(2, (3, 40), generator=g)
    query = text[truth] + 3.0 * torch.randn(3, 40, 30, generator=g, dtype=torch.float64)
    fitted = FittedTexts(text, Numbers(text_scale=30.0))
    cosine = torch.nn.functional.cosine_similarity(query.unsqueeze(2), text.view(1, 1, 5, -1), dim=-1)
    torch.testing.assert_close(fitted.independent(query), 30 * cosine)
    joint = fitted.predict(query)
    torch.testing.assert_close(joint.sum(-1), torch.ones(3, 40, dtype=torch.float64))
    right, alone = ((p.argmax(-1) == truth).double().mean() for p in (joint, cosine))
    assert right > alone + 0.02
    rows, classes = permuted(40), permuted(5, 1)
    again = FittedTexts(text[classes], fitted.numbers).predict(query[:, rows])
    torch.testing.assert_close(again, joint[:, rows][..., classes], **CLOSE)


def test_texts_join_labelled_samples():
    made = clusters(6, 8, 2, 60, present=3, noise=1.8)
    plain = made.accuracy(predict(made).argmax(-1))
    truth = torch.zeros(6, 8, 24, dtype=torch.float64).index_add_(1, made.labels[0], made.support)
    right = []
    for i in range(6):
        one = dataclasses.replace(
            made,
            support=made.support[i : i + 1],
            labels=made.labels[i : i + 1],
            query=made.query[i : i + 1],
            truth=made.truth[i : i + 1],
        )
        of_queries = torch.zeros(8, 24, dtype=torch.float64).index_add_(0, one.truth[0], one.query[0])
        right.append(one.accuracy(predict(one, truth[i] + of_queries).argmax(-1)))
    assert sum(right) / 6 > plain + 0.02


# -- what is carried on ------------------------------------------------------------------------------------------------


def left_by(view, agreement=1.0):
    """What a batch leaves."""
    tasks = len(view.first)
    counts = view.queries.weights.mT @ view.probabilities()
    return Memory(counts.squeeze(1), view.outcome.evidence, torch.full((tasks, 1), agreement, dtype=torch.float64))


def test_a_memory_without_weight_is_none():
    made = clusters(2, 5, 4, 30, present=2)
    fitted = fit_of(made)
    view = fitted.view(made.query)
    left = left_by(view)
    nothing = left.weighed(torch.zeros(2, 1, dtype=torch.float64))
    torch.testing.assert_close(fitted.view(made.query, memory=nothing).probabilities(), view.probabilities(), **CLOSE)
    torch.testing.assert_close(left.plus(nothing).counts, left.counts)
    assert left.plus(None) is left


def test_memories_add_up():
    made = clusters(2, 5, 4, 30, present=2)
    left = left_by(fit_of(made).view(made.query), agreement=0.5)
    both = left.plus(left, 0.8)  # 0.4 of what was before
    torch.testing.assert_close(both.counts, 1.4 * left.counts)
    torch.testing.assert_close(both.evidence, 1.4 * left.evidence)
    torch.testing.assert_close(left.remembered.sum(1), torch.full((2,), 30.0, dtype=torch.float64))


def test_queries_of_before_speak_for_their_classes():
    """Where queries of one class have been seen, a doubtful one is taken for it."""
    made = clusters(40, 5, 4, 40, present=1, noise=2.2)
    fitted = fit_of(made)
    first, second = made.query[:, :38], made.query[:, 38:]
    alone, after = fitted.view(second), fitted.view(second, memory=left_by(fitted.view(first)))
    right = [(v.probabilities().argmax(-1) == 0).double().mean() for v in (alone, after)]
    assert right[1] > right[0] + 0.03


def test_fits_are_of_their_kind():
    made = clusters(1, 3, 2, 4)
    assert isinstance(fit_of(made), Fitted)
    assert fit_of(made).text is None
