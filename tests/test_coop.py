"""CoOp, against torch's own optimiser on one task at a time."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

import unem
from test_methods_clip import image_text_task
from unem import InputError
from unem.methods.coop import random_context
from unem.methods.parts import one_hot

TASK, TRUTH = image_text_task(features=7, noise=0.8)
FEW = {"context_length": 3, "iterations": 9, "learning_rate": 0.002, "feature_scale": 10.0}


class TinyEncoder:
    """A name turns the context, and a layer mixes the two."""

    def __init__(self, classes=4, features=7, width=5):
        generator = torch.Generator().manual_seed(3)
        self.names, self.layer = (
            torch.randn(*shape, generator=generator, dtype=torch.float64)
            for shape in ((classes, width), (2 * width, features))
        )
        self.num_classes, self.num_features, self.largest = classes, features, 0

    def __repr__(self):
        return "TinyEncoder()"

    def start(self, length, seed):
        return random_context(length, self.names.shape[1], seed)

    def numbers_per_task(self, length):
        return 1000

    def __call__(self, context):
        self.largest = max(self.largest, len(context))
        names, layer = self.names.to(context), self.layer.to(context)
        seen = (context.unsqueeze(1) * names.unsqueeze(1)).sin().sum(2)  # [task, class, width]
        return normalize(torch.cat([seen, names.expand_as(seen)], -1).tanh() @ layer, dim=-1)


def coop(**options):
    return unem.create("coop", **{"text_encoder": TinyEncoder(), **FEW, **options})


def learned(encoder, task, i, *, length, steps, rate, scale, seed=0):
    """Context and losses of one task, by torch's SGD."""
    real = task.support_labels[i] >= 0
    images, labels = normalize(task.support[i][real], dim=-1), task.support_labels[i][real]
    context = encoder.start(length, seed).to(images).clone().requires_grad_()
    optimiser = torch.optim.SGD([context], lr=rate, momentum=0.9, weight_decay=5e-4)
    cosine, losses = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps), []
    for step in range(steps):
        loss = cross_entropy(scale * images @ encoder(context.unsqueeze(0))[0].T, labels)
        (context.grad,) = torch.autograd.grad(loss, context)
        losses.append(float(loss.detach()))
        if step == 0:
            optimiser.param_groups[0]["lr"] = 1e-5
            optimiser.step()
            optimiser.param_groups[0]["lr"] = rate
        else:
            optimiser.step()
            cosine.step()
    return context.detach(), losses


@pytest.mark.parametrize("seed", [0, 5])
def test_a_batch_is_torch_sgd_on_each_task(seed):
    encoder, u = TinyEncoder(), coop(context_seed=seed).predict(TASK).probabilities
    assert u.shape == (len(TASK), TASK.num_queries, TASK.num_classes)
    for i in range(len(TASK)):
        context, losses = learned(encoder, TASK, i, length=3, steps=9, rate=0.002, scale=10.0, seed=seed)
        expected = (10 * TASK.query[i] @ encoder(context.unsqueeze(0))[0].T).softmax(-1)
        torch.testing.assert_close(u[i], expected, atol=1e-12, rtol=1e-10)
        assert losses[-1] < losses[0]
    assert not torch.equal(u, coop(context_seed=seed + 1).predict(TASK).probabilities)


def test_the_loss_decreases():
    def loss(steps):
        method = coop(iterations=steps)
        return method._loss(method.learned_context(TASK), normalize(TASK.support, dim=-1), one_hot(TASK))

    values = torch.stack([loss(steps) for steps in (0, 10, 100)])
    assert (values.diff(dim=0) < -0.01).all()


def test_without_steps_it_is_zero_shot_with_the_start():
    encoder = TinyEncoder()
    text = encoder(encoder.start(3, 0).unsqueeze(0))[0]
    u = coop(iterations=0).predict(TASK).probabilities
    torch.testing.assert_close(u, (10 * TASK.query @ text.T).softmax(-1))


def test_tasks_do_not_see_each_other(monkeypatch):
    together = coop().predict(TASK).probabilities
    for i in range(len(TASK)):
        torch.testing.assert_close(together[i : i + 1], coop().predict(TASK[i]).probabilities, atol=1e-12, rtol=1e-10)
    monkeypatch.setattr("unem.methods.parts.NUMBERS_AT_ONCE", {"cpu": 3000})
    encoder = TinyEncoder()
    in_parts = coop(text_encoder=encoder).predict(TASK).probabilities
    assert encoder.largest < len(TASK)
    torch.testing.assert_close(in_parts, together, atol=1e-12, rtol=1e-10)


def test_queries_are_classified_one_by_one():
    some = coop().predict(TASK.with_features(TASK.support, TASK.query[:, 3:5])).probabilities
    torch.testing.assert_close(some, coop().predict(TASK).probabilities[:, 3:5])
    assert not unem.method_info("coop").transductive


def test_only_the_direction_of_an_image_counts():
    scaled = coop().predict(TASK.with_features(7 * TASK.support, 0.1 * TASK.query)).probabilities
    torch.testing.assert_close(scaled, coop().predict(TASK).probabilities)


def test_single_precision_inference_mode_and_single_tasks():
    expected = coop().predict(TASK).probabilities
    with torch.inference_mode():
        u = coop().predict(TASK.to(torch.float32)).probabilities
    assert u.dtype == torch.float32
    assert not u.requires_grad
    torch.testing.assert_close(u.double(), expected, atol=1e-3, rtol=1e-3)
    real = TASK.support_labels[1] >= 0
    one = unem.Task(TASK.support[1][real], TASK.support_labels[1][real], TASK.query[1], num_classes=TASK.num_classes)
    torch.testing.assert_close(coop().predict(one).probabilities, expected[1], atol=1e-12, rtol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_both_devices():
    there = coop().predict(TASK.to("cuda")).probabilities
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), coop().predict(TASK).probabilities, atol=1e-10, rtol=1e-8)


def test_evaluation_needs_no_cached_texts():
    labels = torch.arange(4).repeat_interleave(30)
    features = unem.FeatureSet(TASK.text[labels].float() + 0.1 * torch.randn(120, 7), labels)
    result = unem.evaluate(coop(), features, unem.Protocol(shots=2, effective_classes=2, queries=10), tasks=5)
    row = json.loads(json.dumps(result.row()))
    assert row["text_encoder"] == "TinyEncoder()"
    assert row["context_length"] == 3


# What a user can mend


@pytest.mark.parametrize(
    "options",
    [
        {"context_length": 0},
        {"context_length": 2.5},
        {"iterations": -1},
        {"learning_rate": 0},
        {"learning_rate": math.inf},
        {"feature_scale": -1},
        {"context_seed": -1},
        {"text_encoder": "openai/clip-vit-base-patch32"},
    ],
)
def test_bad_settings(options):
    (option,) = options
    with pytest.raises(InputError, match=option):
        coop(**options)


def test_an_encoder_must_fit_the_task():
    with pytest.raises(InputError, match="text_encoder: it knows 5 classes and the task has 4"):
        coop(text_encoder=TinyEncoder(classes=5)).predict(TASK)
    with pytest.raises(InputError, match="its embeddings have 8 features and the task's images 7"):
        coop(text_encoder=TinyEncoder(features=8)).predict(TASK)
    with pytest.raises(InputError, match="text_encoder: expected a PromptEncoder, got int"):
        unem.methods.coop.CoOp(3)


def test_the_start_must_have_the_length_of_the_context():
    encoder = TinyEncoder()
    encoder.start = lambda length, seed: torch.zeros(2, 5)
    with pytest.raises(InputError, match=r"its start must be \[3, width\].* got shape \(2, 5\)"):
        coop(text_encoder=encoder)


def test_a_rate_that_is_far_too_large_is_named():
    with pytest.raises(InputError, match="learning_rate: the context grew beyond all bounds with 1e\\+30"):
        coop(learning_rate=1e30, iterations=60).predict(TASK)
