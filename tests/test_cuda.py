"""The same code on a GPU: the same tasks, and the same numbers as on the CPU."""

from __future__ import annotations

import pytest
import torch

import unem
from unem.drawing import TaskSource

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
    samplers = [
        unem.Sampler(protocol, labels, labels.flip(0) if other else None, seed=5, device=d) for d in ("cpu", "cuda")
    ]
    here, there = (s.draw(3, 500) for s in samplers)
    for name in ("support_index", "support_labels", "query_index", "query_labels"):
        assert getattr(there, name).is_cuda
        assert torch.equal(getattr(there, name).cpu(), getattr(here, name))


def test_drawing_does_not_wait_for_the_device():
    """Where every choice of classes suffices the host runs ahead."""
    sampler = unem.Sampler(PROTOCOL, features().labels, device="cuda")
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
