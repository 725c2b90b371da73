"""Schedules and presets: plain data that survives a file and refuses nonsense."""

from __future__ import annotations

import json
import math

import pytest
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
        ({"feature_scale": 0.0}, "feature_scale: expected a finite number above 0"),
        ({"class_balance": (1.0, 2.0), "temperature": (1.0,)}, "one value per layer each"),
        ({"class_balance": (1.0, 2.0), "layers": 3}, "layers: expected 2, as many as there are values, got 3"),
        ({"layers": -1}, "layers: expected a whole number of at least 1"),
        ({"layers": 0}, "layers: expected a whole number of at least 1"),
        ({"layers": 2.5}, "layers: expected a whole number of at least 1"),
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
