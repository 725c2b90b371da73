"""From probabilities to labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from unem.errors import InputError
from unem.inference import Answer, Choice, Reason, decided, label_features
from unem.inference.decision import emptied


@st.composite
def probabilities(draw):
    queries, classes = draw(st.integers(1, 30)), draw(st.integers(2, 8))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    return (draw(st.floats(0.1, 6.0)) * torch.randn(queries, classes, generator=g, dtype=torch.float64)).softmax(-1)


def by(u, decision):
    """Images of each class, by a plain computation."""
    u = u.numpy()
    values = u if decision == "accuracy" else u / (u.mean(0) + 1 / len(u))
    return values.argmax(1)


@given(probabilities(), st.sampled_from(["accuracy", "balanced"]))
def test_labels_follow_the_decision(u, decision):
    np.testing.assert_array_equal(decided(u, decision).numpy(), by(u, decision))


@given(probabilities())
def test_a_balanced_decision_moves_images_to_rarer_classes_only(u):
    plain, fair, share = decided(u), decided(u, "balanced"), u.mean(0)
    assert bool((share[fair] <= share[plain] + 1e-12).all())


@given(probabilities(), st.randoms())
def test_the_order_of_queries_and_classes_does_not_matter(u, random):
    rows, columns = (random.sample(range(n), n) for n in u.shape)
    mixed = decided(u[rows][:, columns], "balanced")
    assert torch.tensor(columns)[mixed].tolist() == decided(u, "balanced")[rows].tolist()


def test_classes_that_are_alike_are_decided_alike():
    u = torch.eye(4).repeat(5, 1) * 0.6 + 0.1
    assert torch.equal(decided(u), decided(u, "balanced"))


def test_another_decision_is_refused():
    with pytest.raises(InputError, match="decision: expected 'accuracy' or 'balanced', got 'fair'"):
        decided(torch.eye(2), "fair")
    with pytest.raises(InputError, match="decision"):
        label_features(torch.eye(2), [0, 1], torch.eye(2), ["a", "b"], decision="fair")


@given(probabilities(), st.sampled_from(["accuracy", "balanced"]))
def test_an_answer_says_what_the_other_decision_changes(u, decision):
    answer = Answer(u, by_itself(u), choice("evidence"), decision=decision)
    assert torch.equal(answer.labels, decided(u, decision))
    assert answer.changed == int((by(u, "accuracy") != by(u, "balanced")).sum())
    assert answer.emptied.tolist() == emptied(answer.labels, answer.independent, u.shape[1]).tolist()
    assert Answer(u, by_itself(u), choice("simpleshot")).emptied.tolist() == []


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 99))
def test_emptied_classes_are_those_that_lose_two_or_more(alone, seed):
    g = torch.Generator().manual_seed(seed)
    labels, independent = torch.randint(6, (len(alone),), generator=g), torch.tensor(alone)
    found = emptied(labels, independent, 6).tolist()
    assert set(found) == {k for k in range(6) if k not in labels.tolist() and alone.count(k) >= 2}
    assert [alone.count(k) for k in found] == sorted((alone.count(k) for k in found), reverse=True)


def by_itself(u):
    return u.flip(1).argmax(1)


def choice(name):
    return Choice(unem.create_method(name), None, Reason("given"))


# -- in the answers ----------------------------------------------------------------------------------------------------


def one_heavy(classes=24, seed=2):
    """Queries nearly all of one class, and one of each; classes overlap."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 24, generator=g)
    make = lambda y: centres[y] + 2 * torch.randn(len(y), 24, generator=g)  # noqa: E731
    labels = torch.arange(5 * classes) % classes
    truth = torch.cat([torch.zeros(250, dtype=torch.int64), torch.arange(classes)])
    return make(labels), labels, make(truth), [f"kind {k}" for k in range(classes)]


def test_a_warning_names_the_classes_that_are_left_empty():
    support, labels, query, names = one_heavy()
    answer = label_features(support, labels, query, names)
    lost = [names[k] for k in answer.emptied.tolist()]
    assert len(lost) > 5
    (note,) = (n for n in answer.notes if "empty" in n)
    assert f"leaves {len(lost)} classes empty" in note
    assert (
        ": "
        + ", ".join(lost[:5])
        + f" and {len(lost) - 5} more; rightly if absent; if rare, a balanced decision finds more"
        in note
    )
    assert "--" not in note


def test_a_balanced_decision_finds_rare_classes_and_says_what_it_changed():
    support, labels, query, names = one_heavy()
    plain = label_features(support, labels, query, names)
    fair = label_features(support, labels, query, names, decision="balanced")
    assert torch.equal(plain.probabilities, fair.probabilities)
    assert len(fair.labels.unique()) > len(plain.labels.unique())
    assert plain.changed == fair.changed == int((plain.labels != fair.labels).sum()) > 1
    assert f"balanced decision: {fair.changed} labels are not the most probable class" in fair.notes
    assert not any("a balanced decision" in note for note in fair.notes)
