"""The schedule that is chosen follows from what is known of a task, and says why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unem
from unem.inference.auto import CHOOSABLE, PUBLISHED_SCATTER, choose, rescaled


def task(classes=40, shots=5, queries=20, features=16, *, apart=3.0, seed=0, relu=False, unit=False, labels=None):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(shots) if labels is None else labels
    centres = apart * torch.randn(classes, features, generator=g)
    support = centres[labels] + torch.randn(len(labels), features, generator=g)
    query = centres[torch.randint(classes, (queries,), generator=g)] + torch.randn(queries, features, generator=g)
    both = [support, query]
    both = [rows.clamp_min(0) for rows in both] if relu else both
    both = [torch.nn.functional.normalize(rows, dim=-1) for rows in both] if unit else both
    return unem.Task(both[0], labels, both[1])


CLIP, RESNET = "unem-plus/clip-rn50", "unem-plus/resnet18"


@pytest.mark.parametrize(
    ("made", "preset", "because"),
    [
        (task(), CLIP, "travels best"),
        (task(relu=True), RESNET, "nowhere negative"),
        (task(relu=True, unit=True), CLIP, "travels best"),  # of one length, as normalised embeddings are
        (task(100, relu=True), CLIP, "travels best"),  # the other family breaks down with so many classes
        (task(10, 1), RESNET, "10 classes with 1 shots"),
        (task(60, 1), CLIP, "travels best"),
        (task(apart=0.2), RESNET, "they overlap"),
        (task(100, apart=0.2), CLIP, "travels best"),
    ],
)
def test_families_by_what_the_features_look_like(made, preset, because):
    choice = choose(made)
    assert (choice.method, choice.preset) == ("unem-plus", preset)
    assert because in choice.reason
    assert choice.reason.startswith(preset)
    assert choice.schedule == unem.load_family(preset)


@pytest.mark.parametrize(
    ("shots", "classes", "features", "preset"),
    [
        (5, 18, 512, "mini-imagenet/resnet18/5-shot"),
        (5, 18, 640, "mini-imagenet/wrn28-10/5-shot"),
        (1, 300, 512, "tiered-imagenet/resnet18/1-shot"),
        (12, 55, 512, "cub/resnet18/10-shot"),
        (30, 20, 64, "mini-imagenet/resnet18/20-shot"),
    ],
)
def test_the_nearest_published_schedule(shots, classes, features, preset):
    choice = choose(task(classes, shots, features=features), method="unem-gaussian")
    assert choice.preset == f"unem-gaussian/{preset}"
    assert preset in choice.reason


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(1, 4), st.integers(2, 6), st.integers(0, 99))
def test_the_unit_of_the_features_does_not_matter(unit, shots, classes, seed):
    """A published schedule is tied to the scale of its backbone; rescaled, it says the same of features in any unit."""
    one = task(classes, shots, seed=seed)
    other = unem.Task(unit * one.support[0], one.support_labels[0], unit * one.query[0])
    found = [choose(t, method="unem-gaussian").create().predict(t).probabilities for t in (one, other)]
    torch.testing.assert_close(*(f.squeeze(0) for f in found), atol=2e-3, rtol=0)
    assert choose(one).preset == choose(other).preset


def test_rescaled_features_have_the_scatter_that_was_aimed_at():
    """Against a plain computation of the pooled scatter."""
    made = task(6, 4)
    schedule = unem.preset("unem-gaussian/cub/resnet18/5-shot")
    factor = rescaled(schedule, made).feature_scale / schedule.feature_scale
    rows, labels = factor * made.support[0].numpy(), made.support_labels[0].numpy()
    within = sum(((rows[labels == k] - rows[labels == k].mean(0)) ** 2).sum() for k in range(6)) / (24 - 6)
    assert within == pytest.approx(PUBLISHED_SCATTER, rel=1e-4)


def test_one_shot_and_rows_that_coincide_have_a_scale_too():
    alone = unem.Task(torch.tensor([[0.0], [2.0], [8.0]]), torch.tensor([0, 1, 2]), torch.tensor([[1.0]]))
    schedule = unem.preset("unem-gaussian/cub/resnet18/1-shot")
    spread = 0.5 * np.mean([4, 4, 36])  # half the squared distance to the nearest other class
    assert rescaled(schedule, alone).feature_scale == pytest.approx(
        schedule.feature_scale * (PUBLISHED_SCATTER / spread) ** 0.5
    )
    same = unem.Task(torch.ones(4, 3), torch.tensor([0, 0, 1, 1]), torch.ones(2, 3))
    for method in ("unem-plus", "unem-gaussian"):
        assert torch.isfinite(choose(same, method=method).create().predict(same).probabilities).all()


@pytest.mark.parametrize(
    ("classes", "preset"), [(5, "eurosat"), (24, "eurosat"), (66, "dtd"), (196, "stanford-cars"), (5000, "imagenet")]
)
def test_no_published_schedule_for_more_classes_than_there_are(classes, preset):
    similarities = 0.2 + 0.03 * torch.randn(classes, classes).clamp(-3, 3)
    made = unem.Task(similarities, torch.arange(classes), similarities[:7])
    choice = choose(made, inputs="similarities")
    assert choice.preset == f"unem-dirichlet/{preset}/clip-rn50/4-shot"
    assert choice.schedule == unem.preset(choice.preset)


def test_similarities_that_are_no_cosines_are_brought_to_their_spread():
    cosines = 0.2 + 0.04 * torch.randn(40, 10)
    tasks = [unem.Task(c, torch.arange(40) % 10, c) for c in (cosines, 100 * cosines)]
    scales = [choose(t, inputs="similarities").schedule.feature_scale for t in tasks]
    assert scales[0] / scales[1] == pytest.approx(100, rel=0.1)


def test_texts_are_recognised():
    rows = torch.nn.functional.normalize(torch.randn(12, 8), dim=-1)
    made = unem.Task(rows, torch.arange(12) % 3, rows, text=rows[:3])
    choice = choose(made)
    assert (choice.method, choice.preset) == ("unem-joint", "unem-joint/clip")
    assert choose(made, method="unem-plus").method == "unem-plus"


def test_padding_is_not_looked_at():
    labels = torch.arange(40).repeat_interleave(5)
    plain = task(labels=labels, relu=True)
    padded = unem.Task(
        torch.cat([plain.support[0], torch.full((9, 16), 7.0)]),
        torch.cat([labels, torch.full((9,), -1)]),
        plain.query[0],
    )
    for method in ("unem-plus", "unem-gaussian"):
        one, other = choose(plain, method=method), choose(padded, method=method)
        assert one.preset == other.preset
    assert other.schedule.feature_scale == pytest.approx(one.schedule.feature_scale, rel=1e-4)


def test_methods_without_a_schedule_are_named():
    with pytest.raises(unem.InputError, match=r"schedules can be chosen for unem-plus, .*, not for 'paddle'"):
        choose(task(), method="paddle")


@pytest.mark.parametrize("method", CHOOSABLE)
def test_every_choice_makes_its_method(method):
    rows = torch.nn.functional.normalize(torch.rand(12, 3), dim=-1)
    made = unem.Task(rows, torch.arange(12) % 3, rows, text=rows[:3])
    choice = choose(made, method=method)
    assert choice.create().name == method
    assert choice.preset in unem.list_presets()
