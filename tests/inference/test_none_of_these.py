"""Queries of no class in the support."""

from __future__ import annotations

import pytest
import torch

from unem.errors import InputError
from unem.inference import label_features


def test_none_of_these():
    torch.manual_seed(0)
    labels = torch.arange(60) % 4
    make = lambda y: 12 * torch.eye(64)[y] + torch.randn(len(y), 64)  # noqa: E731
    own, stranger = make(torch.arange(200) % 4), make(torch.full((50,), 9))
    answer = label_features(make(labels), labels, torch.cat([own, stranger]), list("abcd"), none_of_these=0.05)
    marked = answer.none_of_these
    assert marked[200:].float().mean() > 0.9
    assert marked[:200].float().mean() <= 0.1  # 5 % asked for, of sixty images
    looser = label_features(make(labels), labels, torch.cat([own, stranger]), list("abcd"), none_of_these=0.3)
    assert looser.none_of_these.sum() >= marked.sum()
    few = label_features(make(labels[:8]), labels[:8], own, list("abcd"), none_of_these=0.05)
    assert any("too few" in note for note in few.notes)
    with pytest.raises(InputError, match="none_of_these"):
        label_features(make(labels), labels, own, list("abcd"), none_of_these=1.5)


def clusters(labels, seed, features=24):
    g = torch.Generator().manual_seed(seed)
    return 2 * torch.eye(features)[labels] + 0.4 * torch.randn(len(labels), features, generator=g)


def test_false_alarms_are_as_asked_for():
    labels, names = torch.arange(60) % 12, [str(k) for k in range(12)]
    for asked in (0.05, 0.2):
        marked = []
        for seed in range(12):
            support, own = clusters(labels, seed), clusters(torch.arange(120) % 12, 100 + seed)
            marked.append(label_features(support, labels, own, names, none_of_these=asked).none_of_these)
        assert torch.cat(marked).double().mean().item() == pytest.approx(asked, abs=0.03)


def test_one_image_a_class_marks_nothing_and_says_so():
    labels = torch.arange(4)
    answer = label_features(clusters(labels, 0), labels, clusters(torch.arange(9), 1), list("abcd"), none_of_these=0.05)
    assert not answer.none_of_these.any()
    assert answer.novelty.isnan().all()
    assert any("each class has one labelled image" in note for note in answer.notes)


def test_two_images_of_one_class_are_enough_and_the_note_says_for_what():
    labels = torch.tensor([0, 0, 1, 2])
    answer = label_features(clusters(labels, 0), labels, clusters(torch.arange(9), 1), list("abc"), none_of_these=0.05)
    assert answer.novelty.isfinite().all()
    (note,) = (note for note in answer.notes if "too few for" in note)
    assert "2 labelled images of classes with several are too few for 5 % false alarms (19 are needed)" in note
    assert "33 %" in note


def test_very_many_queries_are_judged_in_blocks_that_are_alike():
    labels = torch.arange(20) % 4
    query = torch.cat([clusters(torch.arange(5000) % 4, 1), clusters(torch.full((500,), 9), 2)])
    answer = label_features(clusters(labels, 0), labels, query, list("abcd"), none_of_these=0.05)
    marked = answer.none_of_these.double()
    assert marked[5000:].mean() > 0.9
    assert marked[:5000].mean() < 0.2


def test_images_of_a_class_with_a_single_label_are_marked_no_more_than_others():
    """The mean of a single sample is farther from images of its class than those of five."""
    shots, marked = torch.tensor([1] * 4 + [5] * 8), []
    labels, truth = torch.arange(12).repeat_interleave(shots), torch.arange(240) % 12
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        means = 0.6 * torch.randn(12, 80, generator=generator)
        support, query = (means[y] + torch.randn(len(y), 80, generator=generator) for y in (labels, truth))
        answer = label_features(support, labels, query, [str(k) for k in range(12)], none_of_these=0.05)
        marked.append(answer.none_of_these)
    share = torch.stack(marked).double().mean(0)
    single, several = share[truth < 4].mean(), share[truth >= 4].mean()
    assert several < 0.09
    assert single < 0.09


@pytest.mark.parametrize(("shots", "more"), [([3, 1, 1, 1], True), ([3, 3, 1, 1], False)])
def test_where_most_classes_have_a_single_image_the_note_promises_less(shots, more):
    labels = torch.arange(4).repeat_interleave(torch.tensor(shots))
    query = clusters(torch.arange(8) % 4, 1)
    answer = label_features(clusters(labels, 0), labels, query, list("abcd"), none_of_these=0.05)
    (note,) = (note for note in answer.notes if "too few for" in note)
    assert ("and more of classes with a single labelled image" in note) is more
