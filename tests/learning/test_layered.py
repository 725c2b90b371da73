"""Whatever has a schedule: what was learned is what is predicted with; gates, blocks, shots."""

from __future__ import annotations

import pytest
import torch

import unem
from helpers.families import FAMILIES, random_task, some_family
from unem.data import load_digits
from unem.learning import ScheduleFamily
from unem.learning.family import ONE_SHOTS, graph_size, position
from unem.learning.gate import candidates
from unem.methods import create_for, method_for, method_info


def place(*kind):
    return torch.tensor(position(*kind)[:ONE_SHOTS], dtype=torch.float64)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients(name):
    law = method_info(name).law
    task = random_task(queries=6, text=law.text)
    statistics = law.propagated(law.prepare(task), 2)
    model, where = some_family(law, layers=3)[0].double(), place(2, 6, 4)
    names = [n for n, _ in model.named_parameters()]

    def log_u(*values):
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (statistics, where))

    values = [p.detach().clone().requires_grad_() for p in model.parameters()]
    assert torch.autograd.gradcheck(log_u, values, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("k", "queries"), [(1, 12), (4, 12), (2, 1)])
def test_a_schedule_of_the_family_is_what_was_learned(name, k, queries):
    law = method_info(name).law
    task = random_task(queries=queries, text=law.text)
    model, family = some_family(law)
    statistics = law.propagated(law.prepare(task), graph_size(k, queries, law.neighbours))
    learned = model.double().run(statistics, place(k, queries, 4), log=False)[0].detach()
    ours = unem.gem(task, law, family.at(k, queries, 4)).probabilities
    torch.testing.assert_close(ours, learned, rtol=0, atol=1e-6)
    hinted = unem.create_method(name, schedule=family, effective_classes=k).predict(task).probabilities
    torch.testing.assert_close(hinted, ours, rtol=0, atol=1e-12)


def test_the_average_is_that_of_its_candidates():
    task, (_, family) = random_task(classes=6, queries=15), some_family()  # fewer are partly judged one by one
    method = unem.create_method("unem-plus", schedule=family)
    each = torch.stack(
        [
            unem.create_method("unem-plus", schedule=family, effective_classes=k).predict(task).probabilities
            for k in candidates(6)
        ],
        1,
    )
    ours = method.predict(task).probabilities
    torch.testing.assert_close(ours.sum(-1), torch.ones(2, 15, dtype=torch.float64))
    assert (ours <= each.amax(1) + 1e-12).all()
    assert (ours >= each.amin(1) - 1e-12).all()


def test_what_a_method_needs():
    _, family = some_family()
    assert unem.create_method("unem-plus").schedule == unem.load_schedule(
        "unem-plus/clip-rn50"
    )  # what comes with the library
    with pytest.raises(unem.InputError, match="neither a file nor a preset"):
        unem.create_method("unem-plus", schedule="unem-plus/nowhere")
    with pytest.raises(unem.InputError, match="needs one for the gaussian law, this one is a family"):
        unem.create_method("unem-gaussian", schedule="unem-plus/clip-rn50")
    with pytest.raises(unem.InputError, match="learned for unem-plus, not for unem-joint"):
        unem.create_method("unem-joint", schedule=family)
    with pytest.raises(unem.InputError, match="no gate"):
        unem.create_method("unem-plus", schedule=some_family()[0].data())
    with pytest.raises(unem.InputError, match="effective_classes: expected a whole number of at least 1"):
        unem.create_method("unem-plus", schedule=family, effective_classes=0)


@pytest.mark.parametrize("name", [n for n, p in unem.list_presets().items() if isinstance(p, ScheduleFamily)])
def test_shipped_families_gain_by_transduction(name):
    """On handwritten digits, far from what they were learned on; the one that is the default must gain even there."""
    family = unem.load_schedule(name)
    assert family.gate is not None
    assert family.looks_at_shots
    images = load_digits()
    if family.law.text:  # digits have no texts; class means stand in
        means = torch.stack([images.features[images.labels == k].mean(0) for k in range(10)])
        images = unem.FeatureSet(images.features, images.labels, text_features=means)
    method = unem.create_method(method_for(family).name, schedule=name)
    for effective, margin in ((2, -2 if family.provenance["preset"] != "unem-plus/clip-rn50" else 1), ("all", -2)):
        protocol = unem.Protocol(shots=3, effective_classes=effective, queries=40)
        ours, plain = (unem.evaluate(m, images, protocol, tasks=100).accuracy for m in (method, "prototypes"))
        assert ours > plain + margin


def test_one_query_is_classified_by_the_support_alone():
    _, family = some_family()
    task = random_task(queries=1, tasks=5)
    means = unem.Directions(neighbours=0)
    inductive = unem.gem(task, means, unem.Schedule(1.0, 1.0, 5.0, view_weights=family.view_weights, layers=1))
    assert torch.equal(unem.create_method("unem-plus", schedule=family).predict(task).labels, inductive.labels)


def test_very_many_queries_are_classified_in_blocks(monkeypatch):
    _, family = some_family()
    method = unem.create_method("unem-plus", schedule=family, effective_classes=4)
    task = random_task(queries=90)
    whole = method.predict(task)
    monkeypatch.setattr("unem.learning.layered.AT_ONCE", 32)
    blocks = method.predict(task)
    assert blocks.probabilities.shape == whole.probabilities.shape
    torch.testing.assert_close(blocks.probabilities.sum(-1), torch.ones(2, 90, dtype=torch.float64))
    assert (blocks.labels == whole.labels).double().mean() > 0.9


def test_without_support_the_text_decides_first():
    law = method_info("zero-shot-unem-joint").law
    _, family = some_family(law)
    method = unem.create_method("zero-shot-unem-joint", schedule=family)
    task, other = random_task(text=True), random_task(text=True, seed=1)
    same = unem.Task(other.support, task.support_labels, task.query, text=task.text)
    assert torch.equal(method.predict(task).probabilities, method.predict(same).probabilities)
    single = random_task(text=True, queries=1, tasks=6)
    assert torch.equal(method.predict(single).labels, (single.query @ single.text.mT).argmax(-1))
    with pytest.raises(unem.InputError, match="support: without it"):
        unem.Directions(support=False)


def test_a_task_does_not_depend_on_the_shots_of_others_in_its_batch():
    model, family = some_family(shots=(1, 5))
    method = unem.create_method("unem-plus", schedule=family)
    tasks = [random_task(tasks=1, shots=shots, seed=shots, dtype=torch.float64) for shots in (1, 4, 2)]
    together = method.predict(unem.Task.stack(tasks)).probabilities
    for i, task in enumerate(tasks):
        alone = method.predict(unem.Task.stack([task])).probabilities[0]
        torch.testing.assert_close(together[i], alone, rtol=0, atol=1e-9)
    assert not torch.allclose(*(model.data().at(2, 12, 4, s).class_balances[0] * torch.ones(1) for s in (1, 4)))


def test_evaluation_does_not_tell_how_many_classes_are_present():
    _, family = some_family()

    assert create_for("unem-plus", unem.Protocol(), 20, schedule=family).effective_classes is None
