"""What a fit says of itself: samples that were held out, the mix of classes, distances, another light, and copies."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.clusters import clusters, permuted
from unem.evidence import fit_tasks
from unem.inference import HeldOut, fit, label_features
from unem.inference.diagnostics import FAR, SHIFTED, copy_notes, held_out, mix, relative_distance, shift_notes


def both(made, **given):
    fitted = fit_tasks(made.support, made.member)
    return fitted, fitted.view(made.query, **given)


# -- samples that are held out -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(1, 6), st.integers(0, 99))
def test_every_class_with_two_samples_is_asked_about(shots, present, seed):
    """If independent classification finds it among the queries; every sample of it once."""
    made = clusters(1, len(shots), shots, 12, present=min(present, len(shots)), noise=0.5, seed=seed)
    fitted, view = both(made)
    found = set(view.outcome.independent[0].argmax(-1).tolist())
    several = sum(n for k, n in enumerate(shots) if n > 1 and k in found)
    told = held_out(fitted, view)
    assert (told.samples if told else 0) == several
    if told:
        assert 0 <= told.jointly <= several
        assert 0 <= told.independently <= several


def test_clear_classes_are_all_found_again():
    made = clusters(1, 4, 3, 20, noise=0.1)
    assert held_out(*both(made)) == HeldOut(12, 12, 12)


def test_labels_that_are_wrong_are_not():
    """Samples of which none is like another of its class."""
    made = clusters(1, 4, 4, 30, noise=0.1)
    mixed = dataclasses.replace(made, labels=torch.arange(16).remainder(4).unsqueeze(0))
    told = held_out(*both(mixed))
    assert told.independently < 0.5 * told.samples


def test_one_shot_has_nothing_to_hold_out():
    assert held_out(*both(clusters(1, 4, 1, 20))) is None


def test_they_are_labelled_by_what_a_query_is_labelled_by():
    """A held-out sample is as far from the means of the others as the closed form says, and the most probable class
    counts."""
    made = clusters(1, 5, 4, 40, noise=1.4)
    fitted, view = both(made)
    c, held = fitted.likelihood.calibration, fitted.likelihood.held_out
    logits = -0.5 * c.scale * (held.distances[0] - c.spread * (1 + held.variances[0]))
    there = torch.isin(held.labels[0], view.outcome.independent[0].argmax(-1))
    right = (logits.argmax(-1) == held.labels[0])[there].sum().item()
    assert held_out(fitted, view).independently == right


def test_where_classes_overlap_few_are_found_again():
    told = [held_out(*both(clusters(1, 6, 5, 40, noise=noise))).independently for noise in (0.3, 3.0)]
    assert told[0] == 30
    assert told[1] < 25


def test_many_classes_present_are_told_of_and_texts_help():
    made = clusters(1, 6, 3, 60, noise=2.5, features=40)
    means = torch.stack([made.support[0][made.labels[0] == k].mean(0) for k in range(6)])
    plain = held_out(*both(made))
    fitted = fit_tasks(made.support, made.member, means)
    joined = held_out(fitted, fitted.view(made.query))
    assert joined.independently > plain.independently


def test_order_and_padding_do_not_matter():
    made = clusters(1, 5, [1, 2, 3, 4, 5], 30, noise=1.4)
    order = permuted(15)
    padded = dataclasses.replace(
        made,
        support=torch.cat([made.support[:, order], torch.zeros_like(made.support[:, :3])], 1),
        labels=torch.cat([made.labels[:, order], torch.full((1, 3), -1)], 1),
    )
    assert held_out(*both(padded)) == held_out(*both(made))


# -- the mix -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (torch.zeros(60, dtype=torch.long), {"few"}),
        (torch.arange(80) % 8, {"even"}),
        (torch.tensor([0] * 40 + [1] * 28 + [2] * 16 + [3] * 8 + [4] * 4 + [5, 6, 7]), {"uneven"}),
        (torch.tensor([0] * 49 + list(range(1, 8)) * 3), {"uneven"}),
    ],
)
def test_clear_mixes_are_named(truth, expected):
    told = mix(both(clusters(1, 8, 5, truth=truth, noise=1.6, features=40))[1])
    assert told.name in expected
    assert 0.5 < told.share <= 1 + 1e-6


def test_where_labels_do_not_depend_on_the_mix_none_is_named():
    told = mix(both(clusters(1, 8, 5, 60, noise=0.1, present=1))[1])
    assert (told.name, told.share) == ("any", 1.0)


def test_where_no_hypothesis_has_half_of_the_weight_none_is_named():
    _, view = both(clusters(1, 8, 5, 60, noise=1.7, present=2))
    assert mix(view).name != "any"
    weights = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)
    undecided = dataclasses.replace(view, outcome=dataclasses.replace(view.outcome, weights=weights))
    told = mix(undecided)
    assert (told.name, told.share) == ("none", pytest.approx(0.4))


# -- distances ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shots", [3, 8, [2, 3, 4, 5, 6, 7]])
def test_queries_of_the_same_kind_are_as_far_as_held_out_samples(seed, shots):
    made = clusters(1, 6, shots, 300, noise=0.5, seed=seed)
    distances = relative_distance(fit_tasks(made.support, made.member), made.query)
    assert distances.shape == (1, 300)
    assert distances.mean().item() == pytest.approx(1, abs=0.25)


def shifted(made, size, seed=3):
    g = torch.Generator().manual_seed(seed)
    return dataclasses.replace(made, query=made.query + size * torch.randn(made.query.shape[-1:], generator=g))


def test_the_farther_the_larger():
    made = clusters(1, 6, 5, 60, noise=0.5)
    fitted = fit_tasks(made.support, made.member)
    means = [relative_distance(fitted, shifted(made, size).query).mean() for size in (0.0, 0.5, 1.0, 2.0)]
    assert means == sorted(means)
    assert means[0] < FAR < means[-1]


# -- notes -------------------------------------------------------------------------------------------------------------


def notes_of(made):
    fitted, view = both(made)
    return shift_notes(fitted, view, relative_distance(fitted, made.query)[0])


def test_nothing_is_said_of_queries_of_the_same_kind():
    for seed in range(5):
        assert notes_of(clusters(1, 6, 5, 60, noise=0.5, features=40, seed=seed)) == []


def test_queries_of_another_light_are_told_of():
    made = shifted(clusters(1, 6, 5, 60, noise=0.5, features=40), 1.0)
    (light, *rest) = notes_of(made)
    assert "lie off the examples by something they have in common" in light
    share = both(made)[1].queries.shift.item()
    assert f"({100 * share:.0f} % certain)" in light
    assert all("examples of their kind would help" in note for note in rest)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("centred", [False, True])
def test_queries_of_another_kind_are_told_of(centred, seed):
    """Scattered: they have in common only that, at length one, they lie nearer to the origin than the samples, which is
    no offset where the samples lie around it."""
    made = clusters(1, 6, 5, 60, noise=0.5, features=40)
    if centred:
        centre = made.support.mean(1, keepdim=True)
        made = dataclasses.replace(made, support=made.support - centre, query=made.query - centre)
    g = torch.Generator().manual_seed(seed)
    noise = torch.randn(made.query.shape, generator=g, dtype=torch.float64)
    made = dataclasses.replace(made, query=made.query + 3 * noise)
    *light, kind = notes_of(made)
    assert "they may be of another kind" in kind
    assert ["something they have in common" in note for note in light] == ([] if centred else [True])
    assert (both(made)[1].queries.shift.item() >= SHIFTED) == (not centred)


@pytest.mark.parametrize("given", [{"shots": 1}, {"shots": 2}, {"queries": 9}])
def test_of_few_nothing_is_said_of_distances(given):
    made = clusters(1, 6, **{"shots": 5, "queries": 60, "noise": 0.5, "features": 40} | given)
    g = torch.Generator().manual_seed(0)
    noise = torch.randn(made.query.shape, generator=g, dtype=torch.float64)
    notes = notes_of(dataclasses.replace(made, query=made.query + 3 * noise))
    assert not any("another kind" in note for note in notes)


def test_examples_that_are_nearly_the_same_image_are_told_of():
    """Shots of one moment, that differ too much to be copies."""
    made = clusters(1, 6, 5, 60, noise=0.5, features=40)
    g = torch.Generator().manual_seed(0)
    burst = made.support[:, ::5].repeat_interleave(5, 1)
    burst = burst + 0.05 * torch.randn(burst.shape, generator=g, dtype=torch.float64)
    made = dataclasses.replace(made, support=burst)
    assert both(made)[0].likelihood.counts.sum() == 30
    notes = notes_of(made)
    assert sum("examples of a class are nearly the same image" in note for note in notes) == 1
    assert not any("another kind" in note for note in notes)


@pytest.mark.parametrize(
    ("samples", "queries", "expected"),
    [
        (0, 0, []),
        (1, 0, ["1 labelled image is a copy of another and counts once"]),
        (0, 1, ["1 image to label is a copy of another and counts once"]),
        (2, 0, ["2 labelled images are copies of others and count once"]),
        (1, 3, ["1 labelled image and 3 images to label are copies of others and count once"]),
        (4, 1, ["4 labelled images and 1 image to label are copies of others and count once"]),
    ],
)
def test_copies_are_counted(samples, queries, expected):
    made = clusters(1, 4, 6, 20)
    support, query = made.support.clone(), made.query.clone()
    support[:, 1 : 1 + samples] = support[:, :1]
    query[:, 1 : 1 + queries] = query[:, :1]
    made = dataclasses.replace(made, support=support, query=query)
    assert copy_notes(*both(made), 24) == expected


# -- in answers --------------------------------------------------------------------------------------------------------


def test_a_labelling_has_all_of_them():
    made = clusters(1, 6, 5, 60, noise=0.5, features=40, dtype=torch.float32)
    support, query = made.support[0].clone(), shifted(made, 1.0).query[0].float()
    support[1], query[1] = support[0], query[0]
    answer = label_features(support, made.labels[0], query, list("abcdef"))
    asked = fit(support, made.labels[0]).predict(query)
    assert answer.held_out == asked.held_out
    for words in ("something they have in common", "1 labelled image and 1 image to label are copies"):
        assert sum(words in note for note in answer.notes) == 1
        assert sum(words in note for note in asked.notes) == 1
