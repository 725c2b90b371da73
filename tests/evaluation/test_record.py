"""A result is a record of four parts; no part hides what another says."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch

import unem
from unem.evaluation import COLUMNS, SCORES, Record, assess, flat
from unem.evaluation.comparison import COLUMNS as COMPARED
from unem.experiments import COLUMNS as SWEPT

PROTOCOL = unem.Protocol(shots=3, effective_classes=3, queries=20)


@dataclass(frozen=True)
class Misnamed:
    """A method whose settings are called like what a record has already."""

    tasks: int = 7
    accuracy: float = 0.5
    device: str = "abacus"
    method: str = "mine"
    own: int = 1
    name, inputs = "misnamed", "features"

    def describe(self):
        return {"tasks": self.tasks, "accuracy": self.accuracy, "device": self.device, "method": self.method, "own": 1}

    def predict(self, task):
        return unem.create_method("prototypes").predict(task)


def test_a_setting_is_not_overwritten_by_the_protocol(toy):
    method = unem.create_method("unem-plus", effective_classes=9)
    result = unem.evaluate(method, toy, PROTOCOL, tasks=2)
    assert result.method["settings"]["effective_classes"] == 9
    assert result.protocol["effective_classes"] == 3
    row = result.row()
    assert (row["method.effective_classes"], row["effective_classes"]) == (9, 3)


def test_no_part_hides_another(toy):
    result = unem.evaluate(Misnamed(), toy, PROTOCOL, tasks=4)
    row = result.row()
    assert (row["method"], row["tasks"], row["device"]) == ("misnamed", 4, "cpu")
    assert row["accuracy"] == round(result.accuracy, 4)
    assert row["own"] == 1  # a prefix only where it is needed
    assert {name: row[f"method.{name}"] for name in ("tasks", "accuracy", "device", "method")} == {
        "tasks": 7,
        "accuracy": 0.5,
        "device": "abacus",
        "method": "mine",
    }
    parts = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert list(parts) == ["method", "protocol", "scores", "run"]
    assert len(row) == 1 + sum(len(parts[part]) for part in ("protocol", "scores", "run")) + 5
    assert flat(parts) == row


def test_what_the_parts_hold(toy):
    result = unem.evaluate("paddle", toy, PROTOCOL, tasks=3, seed=8, query=toy.split("test"))
    assert result.method["name"] == "paddle"
    assert result.protocol["query_digest"] == toy.split("test").digest
    assert (result.protocol["classes"], result.protocol["tasks"], result.protocol["seed"]) == (10, 3, 8)
    assert list(result.scores) == [score.name for score in SCORES]
    assert {"seconds_per_task", "peak_memory_mb", "device", "hardware", "versions", "date"} <= result.run.keys()


def test_a_new_score_is_a_column_everywhere(toy, calibration, monkeypatch):
    """What is in the list of scores is in rows and tables; those are not told by name."""
    names = [score.name for score in SCORES]
    assert [column.name for column in COLUMNS][: len(names)] == names
    for table in (list(COMPARED), list(SWEPT)):
        assert [name for name in table if name in names] == names
    highest = unem.evaluation.record.Score("best_task", "best %", lambda per_task, bins: per_task.max().item())
    monkeypatch.setattr("unem.evaluation.record.SCORES", (*SCORES, highest))
    result = unem.evaluate("paddle", toy, PROTOCOL, tasks=5)
    assert result.row()["best_task"] == pytest.approx(result.per_task.max().item(), abs=1e-4)
    assert assess(unem.create_method("paddle"), calibration, toy, PROTOCOL, tasks=5).row()["best_task"] > 0


def test_an_assessment_is_a_record_with_more_scores(toy, calibration):
    result = assess(unem.create_method("paddle"), calibration, toy, PROTOCOL, tasks=5)
    row = result.row(per_task=True)
    assert isinstance(result.record, Record)
    assert row["accuracy"] == result.evaluation.row()["accuracy"]
    assert (row["coverage"], row["level"], len(row["per_task"])) == (round(result.coverage, 4), 0.9, 5)


def test_a_column_of_an_older_row_may_be_missing():
    older = Record({"name": "paddle", "settings": {}}, {}, {}, {"seconds_per_task": 0.1, "peak_memory_mb": 1.0})
    values = {column.name: column.of(older) for column in COLUMNS}
    assert values["accuracy"] is None
    assert values["ms_per_task"] == pytest.approx(100.0)


def test_the_settings_of_a_learned_method_are_its_schedule(toy):
    schedule = unem.Schedule((1.0, 3.0), 1.0, 2.0)
    result = unem.evaluate(unem.create_method("unem-gaussian", schedule=schedule), toy, PROTOCOL, tasks=2)
    assert result.method["settings"]["schedule"]["class_balance"] == [1.0, 3.0]
    assert torch.isfinite(result.per_task).all()
