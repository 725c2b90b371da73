"""The same code on a GPU: the same tasks, and the same numbers as on the CPU."""

from __future__ import annotations

import pytest
import torch

import unem
from helpers.shared import shared_files
from unem.core.memory import GraphedMethod
from unem.core.numerics import backends
from unem.data import Sampler, TaskSource
from unem.learning import FamilyConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

PROTOCOL = unem.Protocol(shots=3, effective_classes=3, queries=40)


def features():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(60)
    table = torch.eye(12, 16)[labels] + 0.35 * torch.randn(720, 16, generator=generator)
    return unem.FeatureSet(table, labels, text_features=torch.eye(12, 16))


@pytest.mark.parametrize("balance", ["pooled", "balanced", "dirichlet(0.3)"])
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("sizes", [[60] * 12, [6] * 20 + [80, 90]], ids=["equal", "drawn again"])
@pytest.mark.parametrize("other", [False, True])
def test_the_same_draws_on_both_devices(balance, overlap, sizes, other):
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels))]
    protocol = unem.Protocol(shots=2, effective_classes=(2, 3), queries=14, balance=balance, overlap=overlap)
    samplers = [Sampler(protocol, labels, labels.flip(0) if other else None, seed=5, device=d) for d in ("cpu", "cuda")]
    here, there = (s.draw(3, 500) for s in samplers)
    for name in ("support_index", "support_labels", "query_index", "query_labels"):
        assert getattr(there, name).is_cuda
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name))


def test_drawing_does_not_wait_for_the_device():
    """Where every choice of classes suffices the host runs ahead."""
    sampler = Sampler(PROTOCOL, features().labels, device="cuda")
    sampler.draw(0, 5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sampler.draw(0, 50)
    finally:
        torch.cuda.set_sync_debug_mode("default")


LAWS = [unem.Gaussian(), unem.Dirichlet(), unem.Dirichlet(solver="mm")]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 2e-3)])
def test_gem_on_both_devices(law, dtype, tolerance):
    schedule = unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.2, 1.0), 8.0 if law.name == "dirichlet" else 2.0)
    task, _ = TaskSource(PROTOCOL, features(), inputs=law.inputs).batch(0, 20)
    here = unem.gem(task.to(dtype), law, schedule).probabilities
    there = unem.gem(task.to(dtype).to("cuda"), law, schedule).probabilities
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=tolerance)


@pytest.mark.parametrize("width", [16, 60])  # fewer and more features than samples
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 5e-3)])
def test_whitened_views_on_both_devices(width, dtype, tolerance):
    known = features()
    noise = 0.35 * torch.randn(720, 44, generator=torch.Generator().manual_seed(1))
    table = torch.cat([known.features, noise], 1)[:, :width]
    law = unem.Directions(views=("unit", "root", "white", "white-root"))
    schedule = unem.Schedule((1.0, 2.0), 1.5, 3.0, propagation=0.3, neighbours=4, query_weight=(1.0, 0.4))
    task = TaskSource(PROTOCOL, unem.FeatureSet(table, known.labels)).batch(0, 20)[0].to(dtype)
    here, there = (unem.gem(task.to(device), law, schedule).probabilities for device in ("cpu", "cuda"))
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=tolerance)


def test_the_kernel_does_not_ignore_the_weight_of_queries():
    schedule = unem.Schedule((1.0, 3.0, 2.0), 1.5, 2.0, query_weight=0.3)
    task, _ = TaskSource(PROTOCOL, features()).batch(0, 20)
    here, there = (unem.gem(task.to(d), unem.Gaussian(), schedule).probabilities for d in ("cpu", "cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=2e-3)


@pytest.mark.parametrize("law", LAWS[:2], ids=str)
def test_batches_do_not_matter(law):
    schedule = unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.2, 1.0), 8.0 if law.name == "dirichlet" else 2.0)
    task = TaskSource(PROTOCOL, features(), inputs=law.inputs).batch(0, 12)[0].to("cuda")
    whole = unem.gem(task, law, schedule).probabilities
    single = torch.cat([unem.gem(t, law, schedule).probabilities for t in task])
    torch.testing.assert_close(single, whole, rtol=0, atol=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_gradients_on_both_devices(law):
    task, labels = TaskSource(PROTOCOL, features(), inputs=law.inputs).batch(0, 10)
    gradients = []
    for device in ("cpu", "cuda"):
        start = unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.2, 1.3), 8.0 if law.name == "dirichlet" else 2.0)
        model = unem.UNEM(law, start, learn=("class_balance", "temperature", "feature_scale")).double().to(device)
        log_u = model(law.prepare(task.to(torch.float64).to(device)))
        torch.nn.functional.nll_loss(log_u.flatten(0, 1), labels.flatten().to(device)).backward()
        gradients.append(torch.cat([p.grad.flatten().cpu() for p in model.parameters()]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["prototypes", "paddle", "em-dirichlet", "hard-em-dirichlet", "zero-shot"])
def test_evaluation_on_both_devices(method):
    here, there = (unem.evaluate(method, features(), PROTOCOL, tasks=60, device=d) for d in ("cpu", "cuda"))
    assert there.accuracy == pytest.approx(here.accuracy, abs=0.3)
    assert there.peak_memory_mb > 0


@pytest.mark.parametrize("law", LAWS[:2], ids=str)
def test_training_on_the_gpu(law, tmp_path):
    run = {"tasks": 40, "epochs": 3, "batch_size": 10, "validation_tasks": 20}
    here, there = (unem.train(features(), law, PROTOCOL, **run, device=d) for d in ("cpu", "cuda"))
    assert there.class_balances == pytest.approx(here.class_balances, rel=0.05)
    path = tmp_path / "c.safetensors"
    unem.train(features(), law, PROTOCOL, **run, device="cuda", checkpoint=path)
    assert unem.train(features(), law, PROTOCOL, **run, device="cuda", checkpoint=path).provenance["epochs"] == 3


@pytest.mark.parametrize("law", LAWS[:2], ids=str)
@pytest.mark.parametrize("queries", [40, 300])
def test_kernels_and_plain_torch_agree(law, queries):
    schedule = unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.2, 1.0), 8.0 if law.name == "dirichlet" else 2.0)
    protocol = unem.Protocol(shots=3, effective_classes=6, queries=queries)
    task, _ = TaskSource(protocol, features(), inputs=law.inputs, device="cuda").batch(0, 20)
    with backends.plain_torch():
        plain = unem.gem(task, law, schedule).probabilities
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities, plain, rtol=0, atol=2e-3)


@pytest.mark.parametrize("law", LAWS[:2], ids=str)
def test_the_loop_never_asks_the_host(law):
    schedule = unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.2, 1.0), 8.0 if law.name == "dirichlet" else 2.0)
    source = TaskSource(PROTOCOL, features(), inputs=law.inputs, device="cuda")
    task, _ = source.batch(0, 20)
    unem.gem(task, law, schedule)
    torch.cuda.set_sync_debug_mode("error")
    try:
        unem.gem(source.batch(20, 20)[0], law, schedule)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", ["em-gaussian", "paddle", "em-dirichlet"])
def test_recorded_graphs_repeat_the_method(name):
    method = unem.create_method(name)
    graphed = GraphedMethod(method)
    source = TaskSource(PROTOCOL, features(), inputs=method.inputs, device="cuda")
    for first in (0, 20, 40):  # other tasks of one size, then tasks that are tensors
        task, _ = source.batch(first, 20)
        expected = method.predict(task).probabilities
        torch.testing.assert_close(graphed.predict(task).probabilities, expected, rtol=0, atol=1e-5)
    assert len(graphed._graphs) == 1
    dense = task.with_features(task.support.clone(), task.query.clone())
    torch.testing.assert_close(graphed.predict(dense).probabilities, expected, rtol=0, atol=1e-5)
    assert len(graphed._graphs) == 2


@pytest.mark.parametrize("method", ["em-gaussian", "em-dirichlet", "hard-em-dirichlet"])
def test_small_batches_give_the_same_evaluation(method):
    whole, small = (
        unem.evaluate(method, features(), PROTOCOL, tasks=60, device="cuda", batch_size=b) for b in (60, 10)
    )
    assert small.accuracy == pytest.approx(whole.accuracy, abs=0.05)
    assert small.calibration_error == pytest.approx(whole.calibration_error, abs=0.05)


@pytest.mark.parametrize("law", LAWS[:2], ids=str)
def test_recorded_steps_learn_what_plain_ones_learn(law, monkeypatch):
    run = {"tasks": 45, "epochs": 4, "batch_size": 10, "validation_tasks": 20, "device": "cuda"}
    recorded = unem.train(features(), law, PROTOCOL, **run)
    monkeypatch.setattr("unem.learning.recorded.EAGER", 10**9)
    plain = unem.train(features(), law, PROTOCOL, **run)
    assert recorded.class_balances == pytest.approx(plain.class_balances, rel=2e-3)
    assert recorded.temperatures == pytest.approx(plain.temperatures, rel=2e-3)


def test_a_family_is_learned_by_recorded_steps(monkeypatch):
    config = FamilyConfig(
        steps=12, layers=4, queries=(5, 20), tasks=(12, 8), batch=(12, 8), gate_tasks=(4, 4), shots=(2,), shares=(1.0,)
    )
    recorded = unem.train(features(), unem.Directions(), config=config, device="cuda")
    here = unem.train(features(), unem.Directions(), config=config)
    monkeypatch.setattr("unem.learning.recorded.EAGER", 10**9)
    plain = unem.train(features(), unem.Directions(), config=config, device="cuda")
    for other in (plain, here):
        for name, rows in recorded.values.items():
            torch.testing.assert_close(torch.tensor(rows), torch.tensor(other.values[name]), rtol=0, atol=5e-3)
    assert recorded.gate is not None


@pytest.mark.parametrize("law", LAWS[:2], ids=str)
def test_very_many_queries(law):
    labels = torch.arange(10).repeat_interleave(5)
    support, query = (torch.eye(10)[y] + 0.3 * torch.randn(len(y), 10) for y in (labels, torch.randint(10, (60_000,))))
    schedule = unem.Schedule((1.0, 2.0), (2.0, 1.5), 3.0)
    here = unem.gem(unem.Task(support, labels, query), law, schedule).probabilities
    there = unem.gem(unem.Task(support.cuda(), labels.cuda(), query.cuda()), law, schedule).probabilities
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=2e-3)


@pytest.mark.parametrize("path", shared_files("parity/*.pt"), ids=lambda p: p.stem)
def test_published_outputs_on_the_gpu(path):
    from helpers.parity import configuration, load

    expected = load(path)["outputs"]["u64"]
    if expected is None:
        pytest.skip("the published code was not run in float64 here")
    task, law, schedule = configuration(load(path), torch.float64)
    found = unem.gem(task.to("cuda"), law, schedule).probabilities
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-8)
