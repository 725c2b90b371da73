"""From features to answers."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import unem
from unem.errors import InputError
from unem.inference import label_features


def some(queries=100, seed=1, noise=0.3):
    """Five labelled samples of eight classes, and queries of two of them."""
    torch.manual_seed(seed)
    centres, labels = torch.randn(8, 24), torch.arange(40) % 8
    rows = [centres[y] + noise * torch.randn(len(y), 24) for y in (labels, torch.arange(queries) % 2)]
    return rows[0], labels, rows[1], [str(k) for k in range(8)]


def test_auto_says_what_it_took_and_how_many_held_out_labels_are_found_again():
    answer = label_features(*some(noise=1.0))
    assert (answer.method, answer.schedule, answer.choice.schedule) == ("evidence", None, None)
    found = answer.held_out
    assert found.samples % 5 == 0  # five of each class that is found among the queries
    assert f"of {found.samples} labelled images that could be held out in turn" in str(answer.reason)
    assert f"{found.jointly} are labelled right jointly and {found.independently} independently" in str(answer.reason)
    assert "%" not in str(answer.reason).split("; of ")[1]  # of so few samples counts are said
    assert re.search(r"; \d+ % of the answer rests on few of the classes being present;", str(answer.reason))
    clear = str(label_features(*some()).reason)
    assert "; the labels are those of each image by itself, whatever the mix;" in clear


def test_of_very_many_queries_some_say_how_many_held_out_labels_are_found_again():
    large = label_features(*some(2501, noise=1.0))
    assert large.held_out.samples % 5 == 0
    assert f"of {large.held_out.samples} labelled images that could be held out in turn" in str(large.reason)
    assert "of the answer rests on" not in str(large.reason)
    assert label_features(*some(2501)).notes == ()  # all of them together


def test_where_the_method_was_given_nothing_is_held_out():
    told = label_features(*some(), method="unem-plus")
    assert (told.method, told.held_out) == ("unem-plus", None)
    assert "held out" not in str(told.reason)


def test_independent_is_the_nearest_mean_in_whitened_directions():
    support, labels, query, names = some()
    task = unem.Task(support, labels, query)
    found = label_features(support, labels, query, names, method="paddle").independent
    assert torch.equal(found, unem.create_method("whitened-mean").predict(task).labels)


def test_names_alone_are_compared_with_the_nearest_text():
    torch.manual_seed(0)
    text, query = (nn.functional.normalize(torch.randn(n, 8), dim=1) for n in (3, 40))
    answer = label_features(None, None, query, list("abc"), text=text)
    assert (answer.method, answer.held_out) == ("zero-shot-evidence", None)
    assert torch.equal(answer.independent, (query @ text.mT).argmax(1))
    assert str(answer.reason) == "the evidence of the task itself says which mix of the 3 classes is present"


@pytest.mark.parametrize("method", ["zero-shot-evidence", "zero-shot-unem-joint"])
def test_zero_shot_does_not_look_at_what_stands_in_for_support(method):
    """The texts fill the place of the support; methods for names alone must not use it."""
    torch.manual_seed(0)
    text, query = (nn.functional.normalize(torch.randn(n, 8), dim=1) for n in (3, 40))
    labels = torch.arange(3)
    one, two = (
        unem.create_method(method).predict(unem.Task(s, labels, query, text=text)).probabilities
        for s in (text, torch.randn(3, 8))
    )
    assert torch.equal(one, two)


def test_a_calibration_tempers_and_marks():
    torch.manual_seed(0)
    labels = torch.arange(10).repeat_interleave(40)
    features = 3 * torch.eye(16)[labels] + torch.randn(400, 16)
    calibration = unem.calibrate("paddle", unem.FeatureSet(features, labels), unem.Protocol(queries=20), tasks=60)
    names = [str(k) for k in range(10)]
    args = (features[::4], labels[::4], features[1::4], names)
    plain = label_features(*args, method="paddle")
    trusted = label_features(*args, method="paddle", calibration=calibration, none_of_these=0.1)
    assert torch.equal(plain.labels, trusted.labels)
    assert not torch.allclose(plain.probabilities, trusted.probabilities)
    expected = calibration.none_of_these(unem.Task(*args[:3]), 0.1)
    assert torch.equal(trusted.none_of_these, expected)
    with pytest.raises(InputError, match="was made for paddle"):
        label_features(*args, method="simpleshot", calibration=calibration)
