"""Learning families."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import unem
from unem.learning import FamilyConfig, ScheduleFamily
from unem.methods import method_info

SHORT = FamilyConfig(steps=60, layers=5, queries=(10, 40), tasks=(12, 8), batch=(12, 8), gate_tasks=(12, 8))


def learn(images, config, **more):
    return unem.train(images, unem.Directions(), config=replace(config, shots=(3,)), **more)


def test_a_stopped_learning_goes_on_as_if_it_had_not_been(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("unem.learning.kinds.KindsObjective.keep_every", 2)
    images, kept = toy.split("val"), tmp_path / "kept.safetensors"

    def stop(news):
        if news.done == 5:
            raise KeyboardInterrupt

    whole = learn(images, SHORT, seed=0)
    with pytest.raises(KeyboardInterrupt):
        learn(images, SHORT, seed=0, checkpoint=kept, progress=stop)
    with pytest.raises(unem.InputError, match=r"checkpoint: .* other settings .*seed"):
        learn(images, SHORT, seed=1, checkpoint=kept)
    resumed = learn(images, SHORT, seed=0, checkpoint=kept)
    assert resumed == whole
    assert resumed.provenance["runs"] == whole.provenance["runs"]
    kept.write_bytes(b"nothing of the kind")
    with pytest.raises(unem.InputError, match="not a training checkpoint"):
        learn(images, SHORT, seed=0, checkpoint=kept)
    assert learn(images, SHORT, seed=0, checkpoint=kept, resume=False) == whole


def test_learning_a_family(toy):
    family = learn(toy.split("val"), SHORT, seed=0)
    assert family == learn(toy.split("val"), SHORT, seed=0)
    method = unem.create_method("unem-plus", schedule=family)
    for k in (2, 12):
        protocol = unem.Protocol(shots=3, effective_classes=k, queries=40)
        ours, plain = (unem.evaluate(m, toy.split("test"), protocol, tasks=200) for m in (method, "prototypes"))
        assert ours.accuracy > plain.accuracy - 2  # it learned for a moment only
    few = unem.Protocol(shots=3, effective_classes=2, queries=40)
    gain = unem.evaluate(method, toy.split("test"), few, tasks=40).accuracy
    assert gain > unem.evaluate("prototypes", toy.split("test"), few, tasks=40).accuracy + 5


def test_learning_for_one_kind_of_task(toy):
    config = FamilyConfig.fixed(3, 40, steps=60, layers=5, tasks=(40,), batch=(20,))
    family = learn(toy.split("val"), config)
    assert (family.effective_classes, family.gate, family.coordinates) == (3, None, 1)
    assert ScheduleFamily.from_dict(json.loads(json.dumps(family.to_dict()))) == family
    method = unem.create_method("unem-plus", schedule=family)  # needs no hint
    few = unem.Protocol(shots=3, effective_classes=3, queries=40)
    gain = unem.evaluate(method, toy.split("test"), few, tasks=40).accuracy
    assert gain > unem.evaluate("prototypes", toy.split("test"), few, tasks=40).accuracy + 5


def test_learning_for_any_shots_from_several_sets(toy):
    config = replace(SHORT, steps=20)
    sets = [toy.split("val"), toy.split("val").only_classes(range(8))]
    family = unem.train(sets, unem.Directions(), config=replace(config, shots=(1, 4)))
    assert family.looks_at_shots
    assert family.ranges["shots"] == (1.0, 4.0)
    assert family.at(3, 40, 12, 1).class_balances != family.at(3, 40, 12, 4).class_balances
    assert family.at(3, 40, 12, 4) == family.at(3, 40, 12, 9)
    with pytest.raises(unem.InputError, match="query: expected one set for each of the 2 feature sets, got 1"):
        unem.train(sets, unem.Directions(), query=toy.split("test"), config=config)


def test_learning_with_text(toy):
    split = toy.split("val")
    words = unem.FeatureSet(split.features, split.labels, text_features=torch.eye(12, 20))
    family = unem.train(words, method_info("unem-joint").law, config=replace(SHORT, shots=(2,)))
    assert family.law.text
    assert unem.evaluate(
        unem.create_method("unem-joint", schedule=family), words, unem.Protocol(shots=2, queries=30), tasks=5
    )


def test_text_that_is_not_there(toy):
    with pytest.raises(unem.InputError, match="has no text_features"):
        unem.train(toy, method_info("unem-joint").law, config=FamilyConfig())


def test_too_few_images():
    small = unem.FeatureSet(torch.randn(20, 4), torch.arange(20) % 10)
    with pytest.raises(unem.InputError, match="too few images"):
        unem.train(small, unem.Directions(), config=FamilyConfig())


def test_what_a_family_is_not_learned_from(toy):
    with pytest.raises(unem.InputError, match="protocol: a family is learned on tasks of many kinds"):
        unem.train(toy, unem.Directions(), unem.Protocol(), FamilyConfig())
    with pytest.raises(unem.InputError, match="law: families are learned for Directions"):
        unem.train(toy, unem.Gaussian(), config=FamilyConfig())
    with pytest.raises(unem.InputError, match="features: a schedule is learned on one set"):
        unem.train([toy, toy], unem.Gaussian())


def test_rates_are_those_of_the_scheduler_of_torch():
    for steps in (1, 2, 7, 60):
        config = FamilyConfig(steps=steps)
        optimiser = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=config.learning_rate)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, config.learning_rate, total_steps=steps)
        for step in range(steps):
            group = optimiser.param_groups[0]
            assert config.rate(step) == {"lr": group["lr"], "betas": group["betas"]}
            optimiser.step()
            if step < steps - 1:
                cycle.step()
