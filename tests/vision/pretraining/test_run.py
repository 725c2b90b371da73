"""A run: its steps, the epoch that is kept, its validation, what it tells."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from helpers.small_networks import Tiny, coloured
from unem.data import Sampler
from unem.errors import InputError
from unem.vision.images import ImageTensors
from unem.vision.networks import digest
from unem.vision.pretraining import PretrainingConfig, pretrain
from unem.vision.pretraining.pictures import NUMBERS
from unem.vision.pretraining.records import RunState
from unem.vision.pretraining.run import Classifier, PretrainingRun

PLAIN = PretrainingConfig(size=16, crop=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=0.0)


def test_the_rate_rises_step_by_step(tiny):
    rates = []
    run = PretrainingRun(coloured(24, 3), None, replace(tiny, warm_up=2), torch.device("cpu"), False)
    original = run._step
    run._step = lambda *args: (rates.append(run.optimiser.param_groups[0]["lr"]), original(*args))[1]
    run._learn(RunState(epoch=1), None)
    assert rates == pytest.approx([0.1 * (1 + n / 3) / 2 for n in (1, 2, 3)])


def test_a_step_is_torchs(tiny):
    """One step of the run, against the loss with smoothed targets and gradient descent written out."""
    images = coloured(8, 2, side=16)
    config = replace(tiny, augmentation=False, weight_decay=0.01, learning_rate=0.05)
    run = PretrainingRun(images, None, config, torch.device("cpu"), False)
    model = Classifier(Tiny(), 2)
    model.load_state_dict(run.model.state_dict())
    rows = torch.arange(8)
    told = run._step(rows, torch.rand(8, NUMBERS))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (run.mean, run.std))
    logits = model((images.pixels / 255 - mean) / std)
    target = 0.9 * F.one_hot(images.labels, 2) + 0.1 / 2
    loss = -(target * logits.log_softmax(1)).sum(1).mean()
    loss.backward()
    assert told[0].item() == pytest.approx(loss.item(), rel=1e-5)
    assert told[1].item() == (logits.argmax(1) == images.labels).double().mean().item()
    for after, before in zip(run.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(after, before - 0.05 * (before.grad + 0.01 * before), atol=1e-6, rtol=1e-4)


def test_pixels_are_normalised_by_their_own_mean_and_spread(tiny):
    images = coloured(30, 3)
    run = PretrainingRun(images, None, tiny, torch.device("cpu"), False)
    values = images.pixels.double() / 255
    assert run.mean == pytest.approx(values.mean((0, 2, 3)).tolist(), abs=1e-5)
    assert run.std == pytest.approx(values.transpose(0, 1).flatten(1).std(1, correction=0).tolist(), abs=1e-5)


def test_resnet_learns_eight_pictures_by_heart():
    images = ImageTensors(torch.randint(256, (8, 3, 16, 16), dtype=torch.uint8), torch.arange(8) % 4)
    config = replace(PLAIN, epochs=12, batch_size=8, learning_rate=0.02, decay_at=())
    history = pretrain(images, config).history
    assert history[-1].accuracy == 100
    assert history[-1].loss < history[0].loss / 1.8  # smoothed targets leave some


def test_the_best_epoch_is_kept(tiny, monkeypatch):
    scores = iter([30.0, 70.0, 50.0, 60.0])
    monkeypatch.setattr(PretrainingRun, "_validate", lambda self: next(scores))
    weights = []
    told = []
    original = PretrainingRun.epoch

    def epoch(self, *args):
        done = original(self, *args)
        weights.append(digest(self.model.network))
        return done

    monkeypatch.setattr(PretrainingRun, "epoch", epoch)
    result = pretrain(coloured(24, 3), tiny, validation=coloured(24, 4), on_epoch=told.append)
    assert [e.kept for e in told] == [True, True, False, False]
    assert result.info["kept_epoch"] == 2
    assert digest(result.network) == weights[1]


def test_progress_is_told(tiny):
    told = []
    pretrain(coloured(24, 3), tiny, on_progress=told.append)
    assert [(p.epoch, p.step) for p in told if p.step == p.steps] == [(e, 3) for e in (1, 2, 3, 4)]
    assert all(p.images_per_second > 0 and p.seconds_left >= 0 and math.isfinite(p.loss) for p in told)
    assert told[-1].seconds_left == 0


def test_a_loss_that_explodes_is_said(tiny):
    with pytest.raises(InputError, match=r"learning_rate: 1e\+30 is too high here"):
        pretrain(coloured(24, 3), tiny, learning_rate=1e30)


def test_few_classes_are_refused(tiny):
    with pytest.raises(InputError, match="at least 2 base classes"):
        pretrain(coloured(8, 1), tiny)


def test_validation_looks_at_centred_features_of_unit_length(tiny):
    """The accuracy, against prototypes written out on the same tasks."""

    images, validation = coloured(30, 3), coloured(40, 4, seed=3)
    run = PretrainingRun(images, validation, tiny, torch.device("cpu"), False)
    base = run._features(images.pixels).mean(0)
    table = F.normalize(run._features(validation.pixels) - base, dim=1)
    draw = Sampler(run.protocol, validation.labels, seed=0).draw(0, tiny.validation_tasks)
    right = []
    for support, labels, query, true in zip(
        draw.support_index, draw.support_labels, draw.query_index, draw.query_labels, strict=True
    ):
        means = torch.stack([table[support[labels == k]].mean(0) for k in range(4)])
        right.append((torch.cdist(table[query], means).argmin(1) == true).double().mean().item())
    assert run._validate() == pytest.approx(100 * np.mean(right), abs=0.5)
    assert run.model.network.training  # it goes on learning afterwards
