"""Schedules and presets: plain data that survives a file and refuses nonsense."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from unem import InputError, Schedule

numbers = st.floats(0, 1e6, allow_nan=False)


@given(
    layers=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12),
    scale=st.floats(1e-6, 1e6),
    law=st.sampled_from([None, "gaussian", "dirichlet", "a law of my own"]),
)
def test_round_trip(tmp_path_factory, layers, scale, law):
    balance, temperature = zip(*layers, strict=True)
    schedule = Schedule(balance, temperature, scale, law=law, provenance={"seed": 3})
    path = tmp_path_factory.mktemp("s") / "s.json"
    schedule.save(path)
    again = Schedule.load(path)
    assert again == schedule
    assert again.provenance == {"seed": 3}


def test_the_weight_of_a_query_is_kept_where_it_is_not_one():
    assert "query_weight" not in Schedule().to_dict()
    schedule = Schedule(query_weight=(0.3, 2.0))
    assert Schedule.from_dict(schedule.to_dict()) == schedule
    assert schedule.query_weights == (0.3, 2.0)
    assert Schedule(layers=2).query_weights == (1.0, 1.0)


def test_lambda_is_beta_times_queries():
    assert Schedule((1.0, 2.0)).lam(75) == (75.0, 150.0)
    assert Schedule(2.0, layers=3).lam(10) == (20.0, 20.0, 20.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"class_balance": math.nan}, "class_balance: expected finite numbers"),
        ({"class_balance": ()}, "class_balance: got an empty sequence"),
        ({"class_balance": "much"}, "class_balance: expected a number"),
        ({"temperature": -1.0}, "temperature: expected finite numbers of at least 0"),
        ({"feature_scale": 0.0}, "feature_scale: expected a number above 0"),
        ({"class_balance": (1.0, 2.0), "temperature": (1.0,)}, "one value per layer each"),
        ({"class_balance": (1.0, 2.0), "layers": 3}, "layers: expected 2, as many as there are values, got 3"),
        ({"layers": -1}, "layers: expected a whole number from 1 to 10000"),
        ({"layers": 0}, "layers: expected a whole number from 1 to 10000"),
        ({"layers": 2.5}, "layers: expected a whole number from 1 to 10000"),
        ({"feature_scale": (1.0, 2.0)}, "feature_scale"),
        ({"query_weight": -0.5}, "query_weight: expected finite numbers of at least 0"),
        ({"class_balance": (1.0, 2.0), "query_weight": (1.0,)}, "query_weight must have one value per layer"),
        ({"law": ""}, "law: expected"),
        ({"law": 3}, "law: expected"),
    ],
)
def test_bad_values_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        Schedule(**settings)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not JSON"),
        ("{}", "is not a schedule"),
        ("[1, 2]", "is not a schedule"),
        ('{"format": "unem-schedule/1"}', "class_balance, feature_scale, temperature missing"),
        ('{"format": "unem-schedule/1", "class_balance": "x", "temperature": 1, "feature_scale": 1}', "class_balance"),
    ],
)
def test_files_that_are_not_schedules(tmp_path, content, message):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        Schedule.load(path)


WHOLE = {"format": "unem-schedule/1", "class_balance": 1.0, "temperature": 1.0, "feature_scale": 1.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(WHOLE | {"propagation": "x"}), "propagation: expected a number"),
        (json.dumps(WHOLE | {"feature_scale": 10**400}), "feature_scale: expected a number"),
        (json.dumps(WHOLE).replace("1.0", "9" * 5000), "it is not JSON"),
        (json.dumps(WHOLE | {"layers": 10**9}), "layers: expected a whole number from 1 to 10000"),
        (json.dumps(WHOLE | {"class_balance": 1e308}), "class_balance: expected finite numbers, none beyond 1e[+]12"),
        (json.dumps(WHOLE | {"class_balance": [1.0, -1e308]}), "class_balance: expected finite numbers, none beyond"),
        (json.dumps(WHOLE | {"temperature": 1e308}), "temperature: expected finite numbers of at least 0, none beyond"),
        (json.dumps(WHOLE | {"feature_scale": 1e308}), "feature_scale: expected a number above 0, up to 1e[+]12"),
        (json.dumps(WHOLE | {"view_weights": [1e308]}), "view_weights: expected numbers"),
        (json.dumps(WHOLE | {"format": ["unem-schedule/1"]}), "is not a schedule"),
        ("[" * 100_000, "nested too deeply"),
        (json.dumps(WHOLE)[:-1] + ', "provenance": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deeply"),
    ],
    ids=range(12),
)
def test_damaged_values_are_named(tmp_path, content, message):
    path = tmp_path / "s.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        unem.load_schedule(path)
    assert len(str(caught.value)) < 600


def test_values_that_are_too_large_together_are_refused():
    """Each in its range, but float32 has no such squares: a sentence, not NaN."""
    task = unem.Task(1e12 * torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]), 1e12 * torch.randn(7, 4))
    with pytest.raises(InputError, match="schedule: its values are too large for these features in"):
        unem.gem(task, unem.Gaussian(), Schedule(feature_scale=1e12))


def test_a_family_with_a_huge_coefficient_is_answered():
    value = unem.load_schedule("unem-plus/resnet18").to_dict()
    value["values"]["propagation"][0][0] = -1e308
    assert unem.load_schedule(value).at(2, 75, 5).propagation < 1e-20


@pytest.mark.parametrize("change", [{"layers": 10**9}, {"layers": "x"}, {"gate": "x"}, {"view_weights": [10**400]}])
def test_damaged_families_are_refused_when_they_are_loaded(change):
    value = unem.load_schedule("unem-plus/clip-rn50").to_dict()
    with pytest.raises(InputError, match="schedule"):
        unem.load_schedule(value | change)


def test_missing_files_and_presets_say_so(tmp_path):
    with pytest.raises(InputError, match="neither a file nor a preset"):
        unem.load_schedule(tmp_path / "none.json")
    with pytest.raises(InputError, match="neither a file nor a preset"):
        unem.load_schedule("unem-gaussian/imaginary")
    with pytest.raises(InputError, match="cannot write"):
        Schedule().save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_presets_are_the_published_values():
    presets = {n: p for n, p in unem.list_presets().items() if isinstance(p, unem.Schedule)}
    assert len(presets) == 137
    mini = unem.load_schedule("unem-gaussian/mini-imagenet/resnet18/5-shot")
    assert mini.law == "gaussian"
    assert mini.lam(75)[:2] == pytest.approx((99.67475, 451.89014), abs=1e-4)
    assert mini.temperatures[-1] == pytest.approx(1.0911634)
    assert mini.feature_scale == pytest.approx(1.0699109)
    assert "CVPR 2025" in mini.provenance["citation"]
    assert unem.load_schedule("unem-dirichlet/sun397/clip-rn50/4-shot").layers == 8
    assert all(not s.adaptive for name, s in presets.items() if "-fixed" in name)
    json.dumps({name: s.to_dict() for name, s in presets.items()})
