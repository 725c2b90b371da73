"""Methods made ready on validation tasks: tuned or learned, the library's and a user's own."""

from __future__ import annotations

import pytest
import torch

import unem
from helpers.own_method import import_own
from unem.evaluation import Validation
from unem.methods import method_info

PROTOCOL = unem.Protocol(shots=2, effective_classes=3, queries=12)
QUICK = {"tasks": 8, "epochs": 1, "validation_tasks": 4, "layers": 3}
QUICK_FAMILY = {
    "steps": 2,
    "cells_per_step": 1,
    "layers": 2,
    "effective_classes": (2,),
    "queries": (12,),
    "tasks": (4,),
    "batch": (2,),
    "shares": (1.0,),
    "gate_tasks": (3,),
    "gate_shares": (1.0,),
}


@pytest.fixture
def parted(toy):
    return toy.split("val"), toy.split("test")


@pytest.mark.parametrize(
    ("name", "learning"), [("unem-gaussian", QUICK), ("unem-dirichlet", QUICK), ("unem-plus", QUICK_FAMILY)]
)
def test_what_is_learned_is_what_the_registry_says(parted, tmp_path, name, learning):
    features = unem.FeatureSet(parted[0].features, parted[0].labels, text_features=torch.eye(10, 16))
    validation = Validation(features, cache=tmp_path, learning=learning, seed=3)
    prepared = validation.ready(name, PROTOCOL, 10)
    info = method_info(name)
    alone = info.recipe.learn(info.law, features, PROTOCOL, learning=learning, seed=3)
    assert prepared.method.schedule == alone
    assert prepared.runs == info.recipe.runs(alone)
    again = validation.ready(name, PROTOCOL, 10)
    assert (again.method.schedule, again.seconds) == (alone, prepared.seconds)  # from the cache
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_another_program_learns_anew(parted, tmp_path, monkeypatch):
    validation = Validation(parted[0], cache=tmp_path, learning=QUICK)
    first = validation.ready("unem-gaussian", PROTOCOL, 10)
    monkeypatch.setattr("unem.evaluation.digests.code_digest", lambda others=(): "another")
    again = validation.ready("unem-gaussian", PROTOCOL, 10)
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert again.method.schedule == first.method.schedule


def test_a_users_own_learned_method(parted, tmp_path, monkeypatch):
    import_own(tmp_path, monkeypatch)
    validation = Validation(parted[0], cache=tmp_path / "cache", learning=QUICK)
    own, theirs = (validation.ready(name, PROTOCOL, 10).method for name in ("own-unem", "unem-gaussian"))
    assert own.schedule.class_balance == theirs.schedule.class_balance
    rows = unem.compare(["own-unem", "unem-gaussian"], parted[1], PROTOCOL, tasks=5, validation=validation).rows()
    assert [row["method"] for row in rows] == ["own-unem", "unem-gaussian"]
    assert rows[0]["accuracy"] == rows[1]["accuracy"]
    assert rows[0]["validation_tasks"] == 8 + 4
