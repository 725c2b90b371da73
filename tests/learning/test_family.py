"""Families of schedules as data."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers.families import some_family
from unem.learning import ScheduleFamily
from unem.learning.family import position
from unem.learning.gate import candidates


@given(st.integers(1, 300), st.integers(1, 10**5), st.integers(2, 1000))
def test_a_schedule_for_any_place(k, queries, classes):
    _, family = some_family()
    schedule = family.at(min(k, classes), queries, classes)
    assert all(math.isfinite(v) and v > 0 for v in (*schedule.class_balances, *schedule.temperatures))
    assert 0 <= schedule.propagation <= 1
    assert 1 <= schedule.neighbours <= 10


def test_files(tmp_path):
    _, family = some_family()
    family.save(tmp_path / "family.json")
    again = ScheduleFamily.load(tmp_path / "family.json")
    assert again == family
    assert again.at(3, 40, 20) == family.at(3, 40, 20)
    unem.Schedule().save(tmp_path / "schedule.json")
    with pytest.raises(unem.InputError, match="is not a family of schedules"):
        ScheduleFamily.load(tmp_path / "schedule.json")
    stored = json.loads((tmp_path / "family.json").read_text())
    for damage in (
        {"values": {"class_balance": [[1.0], [0.0]]}},
        {"law": {"views": ["left"]}},
        {"gate": 3},
        {"layers": "x"},
    ):
        (tmp_path / "broken.json").write_text(json.dumps({**stored, **damage}))
        with pytest.raises(unem.InputError):
            ScheduleFamily.load(tmp_path / "broken.json")


def test_beyond_what_was_learned_it_stays_at_the_border():
    _, family = some_family()
    family = replace(family, ranges={"queries": (10.0, 100.0), "num_classes": (20.0, 40.0)})
    assert family.at(5, 1000, 300).class_balances == family.at(5, 100, 40).class_balances
    assert family.at(5, 1, 4).temperatures == family.at(5, 10, 20).temperatures
    assert family.at(5, 50, 30).class_balances != family.at(5, 60, 30).class_balances
    assert ScheduleFamily.from_dict(json.loads(json.dumps(family.to_dict()))) == family


def test_positions():
    assert position(5, 75, 40) == (1.0, *(0.0,) * 7)
    assert candidates(10) == (1, 2, 3, 5, 8, 10, 10, 10)
    assert candidates(100)[-1] == 100
