"""Queries that are farther from the examples than these are from each other."""

from __future__ import annotations

import pytest
import torch

import unem
from unem.inference import label_features
from unem.inference.another_kind import FAR, relative_distance


def rows(shots=5, queries=60, shift=0.0, classes=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 24, generator=g)
    labels, truth = torch.arange(shots * classes) % classes, torch.arange(queries) % classes
    support, query = (centres[y] + 0.5 * torch.randn(len(y), 24, generator=g) for y in (labels, truth))
    return support, labels, query + shift * torch.randn(24, generator=g)


@pytest.mark.parametrize("seed", range(5))
def test_queries_of_the_same_kind_are_as_far_as_held_out_samples(seed):
    assert relative_distance(unem.Task(*rows(queries=300, seed=seed))) == pytest.approx(1, abs=0.2)


def test_the_farther_the_larger():
    distances = [relative_distance(unem.Task(*rows(shift=shift))) for shift in (0.0, 0.5, 1.0, 2.0)]
    assert distances == sorted(distances)
    assert distances[0] < FAR < distances[-1]


@pytest.mark.parametrize("given", [{"shots": 1}, {"shots": 2}, {"queries": 9}])
def test_what_cannot_be_told(given):
    assert relative_distance(unem.Task(*rows(shift=3.0, **given))) is None


def test_a_note_says_so():
    names = list("abcdef")
    near, far = (label_features(*rows(shift=shift), names) for shift in (0.0, 2.0))
    assert not any("another kind" in note for note in near.notes)
    assert sum("they may be of another kind" in note for note in far.notes) == 1


def test_of_very_many_queries_some_are_asked():
    support, labels, query = rows(queries=3000)
    whole = relative_distance(unem.Task(support, labels, query))
    turned = relative_distance(unem.Task(support, labels, query.flip(0)))
    assert whole == pytest.approx(turned)
    assert whole < FAR


def test_copies_among_the_examples_are_not_taken_for_another_kind_of_image():
    support, labels, query = rows()
    burst = support[:6].repeat(5, 1) + 0.01 * support  # shots of one moment
    notes = [note for note in label_features(burst, labels, query, list("abcdef")).notes if "examples" in note]
    assert len(notes) == 1
    assert "nearly the same image" in notes[0]
    assert "another kind" not in notes[0]
