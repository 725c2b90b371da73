"""The schedule that is chosen follows from what is known of a task, and says why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unem
from unem.inference import Labeller, Reason, choose, rescaled, sentence
from unem.inference.auto import PUBLISHED_SCATTER, explained


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


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 5), st.booleans(), st.booleans(), st.floats(0.1, 5.0))
def test_features_of_any_kind_are_classified_by_evidence(classes, shots, relu, unit, apart):
    choice = choose(task(classes, shots, relu=relu, unit=unit, apart=apart))
    assert (choice.method, choice.preset, choice.schedule) == (unem.create_method("evidence"), None, None)
    assert choice.reason == Reason("evidence", {"classes": classes, "labelled": classes * shots})


@pytest.mark.parametrize("made", [task(), task(relu=True), task(10, 1), task(apart=0.2)])
def test_unem_plus_has_the_schedule_that_it_comes_with(made):
    choice = choose(made, method="unem-plus")
    assert (choice.method, choice.preset) == (unem.create_method("unem-plus"), CLIP)
    assert choice.reason == Reason("shipped", {"preset": CLIP})
    assert sentence(choice.reason).startswith(CLIP)


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
    assert preset in str(choice.reason)
    assert choice.reason.numbers["shots"] == shots


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-3, 1e3), st.integers(1, 4), st.integers(2, 6), st.integers(0, 99))
def test_the_unit_of_the_features_does_not_matter(unit, shots, classes, seed):
    """A published schedule is tied to the scale of its backbone; rescaled, it says the same of features in any unit."""
    one = task(classes, shots, seed=seed)
    other = unem.Task(unit * one.support[0], one.support_labels[0], unit * one.query[0])
    found = [choose(t, method="unem-gaussian").method.predict(t).probabilities for t in (one, other)]
    torch.testing.assert_close(*(f.squeeze(0) for f in found), atol=2e-3, rtol=0)
    assert choose(one).preset == choose(other).preset


def test_rescaled_features_have_the_scatter_that_was_aimed_at():
    """Against a plain computation of the pooled scatter."""
    made = task(6, 4)
    schedule = unem.load_schedule("unem-gaussian/cub/resnet18/5-shot")
    factor = rescaled(schedule, made).feature_scale / schedule.feature_scale
    rows, labels = factor * made.support[0].numpy(), made.support_labels[0].numpy()
    within = sum(((rows[labels == k] - rows[labels == k].mean(0)) ** 2).sum() for k in range(6)) / (24 - 6)
    assert within == pytest.approx(PUBLISHED_SCATTER, rel=1e-4)


def test_one_shot_and_rows_that_coincide_have_a_scale_too():
    alone = unem.Task(torch.tensor([[0.0], [2.0], [8.0]]), torch.tensor([0, 1, 2]), torch.tensor([[1.0]]))
    schedule = unem.load_schedule("unem-gaussian/cub/resnet18/1-shot")
    spread = 0.5 * np.mean([4, 4, 36])  # half the squared distance to the nearest other class
    assert rescaled(schedule, alone).feature_scale == pytest.approx(
        schedule.feature_scale * (PUBLISHED_SCATTER / spread) ** 0.5
    )
    same = unem.Task(torch.ones(4, 3), torch.tensor([0, 0, 1, 1]), torch.ones(2, 3))
    for method in ("unem-plus", "unem-gaussian"):
        assert torch.isfinite(choose(same, method=method).method.predict(same).probabilities).all()


@pytest.mark.parametrize(
    ("classes", "preset"), [(5, "eurosat"), (24, "eurosat"), (66, "dtd"), (196, "stanford-cars"), (5000, "imagenet")]
)
def test_no_published_schedule_for_more_classes_than_there_are(classes, preset):
    similarities = 0.2 + 0.03 * torch.randn(classes, classes).clamp(-3, 3)
    made = unem.Task(similarities, torch.arange(classes), similarities[:7])
    choice = choose(made, inputs="similarities")
    assert choice.preset == f"unem-dirichlet/{preset}/clip-rn50/4-shot"
    assert choice.schedule == unem.load_schedule(choice.preset)


def test_similarities_that_are_no_cosines_are_brought_to_their_spread():
    cosines = 0.2 + 0.04 * torch.randn(40, 10)
    tasks = [unem.Task(c, torch.arange(40) % 10, c) for c in (cosines, 100 * cosines)]
    scales = [choose(t, inputs="similarities").schedule.feature_scale for t in tasks]
    assert scales[0] / scales[1] == pytest.approx(100, rel=0.1)


def test_texts_are_recognised():
    rows = torch.nn.functional.normalize(torch.randn(12, 8), dim=-1)
    made = unem.Task(rows, torch.arange(12) % 3, rows, text=rows[:3])
    choice = choose(made)
    assert (choice.method.name, choice.preset, choice.reason.code) == ("evidence-joint", None, "evidence")
    assert choose(made, method="unem-plus").method.name == "unem-plus"
    alone = choose(made, support=False)
    assert (alone.method.name, alone.reason) == ("zero-shot-evidence", Reason("evidence", {"classes": 3}))


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


LEARNED = [m.name for m in unem.list_methods() if m.learned and unem.list_presets(f"{m.name}/*")]


@pytest.mark.parametrize("method", LEARNED)
def test_every_choice_makes_its_method(method):
    rows = torch.nn.functional.normalize(torch.rand(12, 3), dim=-1)
    made = unem.Task(rows, torch.arange(12) % 3, rows, text=rows[:3])
    choice = choose(made, method=method)
    assert choice.method.name == method
    assert choice.preset in unem.list_presets()


# -- what was given ----------------------------------------------------------------------------------------------------


def test_a_method_without_a_schedule_is_taken_as_it_is():
    choice = choose(task(), method="paddle", options={"iterations": 3})
    assert (choice.method, choice.preset) == (unem.create_method("paddle", iterations=3), None)
    assert choice.reason == Reason("given")
    with pytest.raises(unem.InputError, match="'paddle' works without one"):
        choose(task(), method="paddle", schedule=CLIP)


def test_a_schedule_that_was_given_is_used():
    family = unem.load_schedule(RESNET)
    for fixed in ({"schedule": RESNET}, {"schedule": family}, {"options": {"schedule": family}}):
        choice = choose(task(), **fixed)
        assert choice.schedule == family
        assert (choice.method.name, choice.reason.code) == ("unem-plus", "given")  # that which it was learned for
    assert choose(task(), schedule=RESNET).preset == RESNET


def test_the_number_of_classes_goes_to_methods_that_take_it_and_is_noted_for_others():
    assert choose(task(), method="unem-plus", effective_classes=3).method.effective_classes == 3
    (note,) = choose(task(), effective_classes=3).notes
    assert note == "evidence does not use the number of effective classes"
    (note,) = choose(task(), method="paddle", effective_classes=3).notes
    assert note == "paddle does not use the number of effective classes"
    similarities = unem.Task(torch.rand(6, 3), torch.arange(6) % 3, torch.rand(4, 3))
    (note,) = choose(similarities, method="em-dirichlet").notes
    assert "assumes that 5 classes are present" in note
    assert "--" not in note
    with pytest.raises(unem.InputError, match=r"effective_classes: expected 1 … 40, got 41"):
        choose(task(), effective_classes=41)


def test_nothing_to_choose_for():
    with pytest.raises(unem.InputError, match="support, text: both are missing"):
        choose(task(), support=False)


# -- what held-out labels say ------------------------------------------------------------------------------------------


def asked(made):
    """What a labeller says of a task's queries."""
    names = [str(k) for k in range(made.num_classes)]
    return Labeller.of(made, names).predict(made.query[0])


def test_held_out_samples_are_information_and_decide_nothing():
    made = task(6, 5)
    choice, found = choose(made), asked(made)
    told = explained(choice, found)
    assert (told.method, told.preset, choice.held_out) == (choice.method, choice.preset, None)
    assert told.held_out == found.held_out
    numbers = {"held_out": 30, "jointly": told.held_out.jointly, "independently": told.held_out.independently}
    numbers |= {"mix": found.mix.name, "mix_share": found.mix.share}
    assert told.reason == Reason("evidence", {"classes": 6, "labelled": 30, **numbers})


def test_of_three_classes_no_mix_is_named():
    """Few, uneven and even numbers are hardly told apart."""
    made = task(3, 5)
    assert "mix" not in explained(choose(made), asked(made)).reason.numbers
    assert "mix" in explained(choose(task(4, 5)), asked(task(4, 5))).reason.numbers


@pytest.mark.parametrize("fixed", [{"method": "unem-plus"}, {"method": "evidence"}, {"schedule": RESNET}])
def test_what_was_given_is_not_explained(fixed):
    choice = choose(task(6, 5), **fixed)
    assert explained(choice, asked(task(6, 5))) is choice


def test_texts_alone_have_nothing_to_hold_out():
    rows = torch.nn.functional.normalize(torch.randn(12, 8), dim=-1)
    made = unem.Task(rows[:3], torch.arange(3), rows, text=rows[:3])
    choice = choose(made, support=False)
    assert explained(choice, asked(made)) is choice
