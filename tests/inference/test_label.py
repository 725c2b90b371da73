"""From features to answers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import unem
from unem.errors import InputError
from unem.inference import label_features


def test_auto_asks_the_labelled_images():
    torch.manual_seed(1)
    labels, names = torch.arange(40) % 8, [str(k) for k in range(8)]
    centres, scenes = torch.randn(8, 24), 2 * torch.randn(3, 24)
    make = lambda y, s: centres[y] + scenes[s] + 0.3 * torch.randn(len(y), 24)  # noqa: E731
    scene = lambda n: torch.randint(3, (n,))  # noqa: E731
    many, few = torch.arange(400) % 8, torch.arange(100) % 2
    misled = label_features(make(labels, scene(40)), labels, make(many, scene(400)), names)
    assert misled.method == "baseline"
    assert misled.held_out.jointly < misled.held_out.independently
    assert misled.reason.code == "independent-better"
    assert misled.reason.numbers["jointly"] == misled.held_out.jointly
    assert (misled.schedule, misled.choice.schedule) == (None, None)  # those of the answer that was given
    assert "labelled samples were held out" in str(misled.reason)
    helped = label_features(make(labels, 0 * labels), labels, make(few, 0 * few), names)
    assert helped.method == "unem-plus"
    assert helped.held_out.samples >= 10
    told = label_features(make(labels, scene(40)), labels, make(many, scene(400)), names, method="unem-plus")
    assert (told.method, told.held_out) == ("unem-plus", None)


def test_independent_is_the_nearest_mean():
    torch.manual_seed(2)
    labels = torch.arange(9) % 3
    support, query = torch.randn(9, 5), torch.randn(3000, 5)
    found = label_features(support, labels, query, ["a", "b", "c"], method="paddle").independent
    centre = support.mean(0)
    unit = lambda x: (x - centre) / (x - centre).norm(dim=-1, keepdim=True)  # noqa: E731
    means = torch.stack([unit(support)[labels == k].mean(0) for k in range(3)])
    assert torch.equal(found, torch.cdist(unit(query), means).argmin(1))


def test_zero_shot_does_not_look_at_what_stands_in_for_support():
    """The texts fill the place of the support; methods for names alone must not use it."""
    torch.manual_seed(0)
    text, query = (nn.functional.normalize(torch.randn(n, 8), dim=1) for n in (3, 40))
    labels = torch.arange(3)
    one, two = (
        unem.create_method("zero-shot-unem-joint").predict(unem.Task(s, labels, query, text=text)).probabilities
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
