"""Learning: it helps, it is deterministic, it can be stopped and resumed without changing the result."""

from __future__ import annotations

import pytest
import torch

import unem
from unem import InputError
from unem.core.laws import within_class_scatter
from unem.data import load_digits
from unem.learning import FamilyConfig, Trainer, TrainingConfig
from unem.learning.losses import LOSSES

PROTOCOL = unem.Protocol(shots=2, effective_classes=3, queries=40)
SMALL = {"tasks": 24, "epochs": 4, "batch_size": 8, "validation_tasks": 20}


@pytest.fixture(scope="module")
def validation():
    return load_digits().split("val")


def test_learning_beats_em_on_unseen_images():
    features = load_digits()
    schedule = unem.train(features.split("val"), unem.Gaussian(), PROTOCOL, tasks=100, epochs=10, seed=0)
    test = features.split("test")
    learned = unem.evaluate(unem.UNEM(unem.Gaussian(), schedule), test, PROTOCOL, tasks=200, seed=1)
    em = unem.evaluate("em-gaussian", test, PROTOCOL, tasks=200, seed=1)
    difference = learned.per_task - em.per_task
    assert difference.mean() > 3 * difference.std() / 200**0.5


@pytest.mark.parametrize("law", [unem.Gaussian(), unem.Dirichlet()], ids=str)
@pytest.mark.parametrize("recipe", [TrainingConfig.default, TrainingConfig.published])
def test_the_same_seed_gives_the_same_schedule(validation, law, recipe):
    config = recipe(law, **SMALL)
    one, two = (unem.train(validation, law, PROTOCOL, config, seed=3) for _ in range(2))
    assert one == two
    assert one.provenance == two.provenance
    other = unem.train(validation, law, PROTOCOL, config, seed=4)
    assert other != one


def test_the_best_epoch_is_kept(validation):
    schedule = unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, learning_rate=2.0)
    history = schedule.provenance["history"]
    best = max(history, key=lambda e: (e["validation_accuracy"], -e["validation_loss"]))
    assert schedule.provenance["kept_epoch"] == best["number"]
    assert len(history) == 4


class Stop(Exception):
    pass


def stop_after(epochs, error):
    def progress(news):
        if news.done == epochs:
            raise error

    return progress


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop])
def test_a_resumed_run_equals_an_uninterrupted_one(validation, tmp_path, error):
    """progress is told before the checkpoint is written, so the interrupted epoch is repeated."""
    path = tmp_path / "c.safetensors"
    run = {"protocol": PROTOCOL, "seed": 5, **SMALL}
    whole = unem.train(validation, unem.Gaussian(), **run)
    if error is KeyboardInterrupt:
        part = unem.train(validation, unem.Gaussian(), **run, checkpoint=path, progress=stop_after(3, error))
        assert part.provenance["interrupted"]
        assert part.provenance["epochs"] == 3
    else:
        with pytest.raises(Stop):
            unem.train(validation, unem.Gaussian(), **run, checkpoint=path, progress=stop_after(3, error))
    resumed = unem.train(validation, unem.Gaussian(), **run, checkpoint=path)
    assert resumed == whole
    assert resumed.provenance["history"] == whole.provenance["history"]
    assert not resumed.provenance["interrupted"]


def test_interrupting_the_first_epoch_keeps_the_start_values(validation, monkeypatch):
    """After some steps, which have changed the parameters already."""
    advance, taken = Trainer.advance, []

    def interrupt(trainer):
        if len(taken) == 2:
            raise KeyboardInterrupt
        taken.append(trainer.step)
        advance(trainer)

    monkeypatch.setattr(Trainer, "advance", interrupt)
    schedule = unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, class_balance=1.5)
    assert schedule.class_balances == pytest.approx((1.5,) * 10)
    assert schedule.provenance["kept_epoch"] == 0


def test_a_checkpoint_of_another_run_is_refused(validation, tmp_path):
    path = tmp_path / "c.safetensors"
    unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, checkpoint=path)
    with pytest.raises(InputError, match=r"belongs to a run with other settings \(different: seed\)"):
        unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, seed=1, checkpoint=path)
    with pytest.raises(InputError, match=r"different: .*law"):
        unem.train(validation, unem.Gaussian(proportion_floor=1e-9), PROTOCOL, **SMALL, checkpoint=path)
    other_text = unem.FeatureSet(validation.features, validation.labels, text_features=-validation.text_features)
    with pytest.raises(InputError, match="different: digest"):
        unem.train(other_text, unem.Gaussian(), PROTOCOL, **SMALL, checkpoint=path)
    unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, seed=1, checkpoint=path, resume=False)
    path.write_bytes(b"garbage")
    with pytest.raises(InputError, match="is not a training checkpoint"):
        unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, checkpoint=path)


@pytest.mark.parametrize("law", [unem.Gaussian(), unem.Dirichlet()], ids=str)
def test_chunks_and_keeping_do_not_change_the_result(validation, law, monkeypatch):
    """Memory decides how the work is cut, never what comes out (beyond rounding)."""
    config = TrainingConfig.default(law, **SMALL)
    whole = unem.train(validation, law, PROTOCOL, config)
    monkeypatch.setattr("unem.learning.epochs.KEEP_BYTES", 0)
    monkeypatch.setattr("unem.learning.epochs.tasks_per_batch", lambda *a, **k: 3)
    cut = unem.train(validation, law, PROTOCOL, config)
    assert cut.class_balances == pytest.approx(whole.class_balances, rel=1e-2)
    assert cut.temperatures == pytest.approx(whole.temperatures, rel=1e-2)


def test_ablations_keep_what_they_should(validation):
    shared = unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, adaptive=False)
    assert isinstance(shared.class_balance, float)
    assert isinstance(shared.temperature, float)
    plain = unem.train(
        validation, unem.Gaussian(), PROTOCOL, **SMALL, learn=("class_balance",), temperature=1.0, feature_scale=1.0
    )
    assert plain.temperatures == (1.0,) * 10
    assert plain.feature_scale == 1.0
    assert isinstance(plain.class_balance, tuple)


def test_published_settings():
    gaussian, dirichlet = TrainingConfig.published(unem.Gaussian()), TrainingConfig.published(unem.Dirichlet())
    assert (gaussian.tasks, gaussian.epochs, gaussian.learning_rate, gaussian.loss) == (1000, 80, 0.1, "published")
    assert gaussian.class_balance == pytest.approx(1.3132617)
    assert gaussian.temperature == pytest.approx(2.3132617)
    assert (dirichlet.tasks, dirichlet.batch_size, dirichlet.learning_rate) == (90, 15, 0.5)
    assert gaussian.rate(49, 1) == 0.1
    assert gaussian.rate(50, 1) == 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": 0}, "tasks: expected a whole number of at least 1"),
        ({"epochs": 1.5}, "epochs"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"loss": "mse"}, "loss: expected 'nll' or 'published'"),
        ({"constraints": "none"}, "constraints"),
        ({"learn": ()}, "nothing to learn"),
        ({"class_balance": -1.0}, "class_balance: a learned value must start above 0"),
    ],
)
def test_bad_settings_are_named(validation, changes, message):
    with pytest.raises(InputError, match=message):
        unem.train(validation, unem.Gaussian(), PROTOCOL, **changes)


def test_a_loss_is_one_entry_of_the_table(validation, monkeypatch):
    with pytest.raises(InputError, match="loss: expected 'nll' or"):
        FamilyConfig(loss="mine")
    seen = []

    def mine(log_u, labels):
        seen.append(log_u.shape)
        return log_u.exp().square().mean()

    monkeypatch.setitem(LOSSES, "mine", mine)
    unem.train(validation, unem.Gaussian(), PROTOCOL, loss="mine", tasks=4, epochs=1, layers=2, validation_tasks=0)
    schedules = len(seen)
    small = {"steps": 2, "layers": 2, "tasks": (4,), "batch": (2,)}
    unem.train(validation, unem.Directions(), config=FamilyConfig.fixed(3, 20, loss="mine", **small))
    assert 0 < schedules < len(seen)


def test_scatter_sets_the_scale_of_any_embedding():
    features = unem.FeatureSet(torch.randn(2000, 8), torch.arange(2000) % 4)
    assert within_class_scatter(features.features, features.labels) == pytest.approx(8, rel=0.05)
    constant = unem.FeatureSet(torch.ones(8, 3), torch.arange(8) % 2)
    assert within_class_scatter(constant.features, constant.labels) == 1.0


def test_one_layer_can_be_learned(validation, tmp_path):
    """λ of a single Gaussian layer has no influence and gets no gradient; a checkpoint must cope."""
    path = tmp_path / "c.safetensors"
    run = {"protocol": PROTOCOL, **SMALL, "layers": 1}
    with pytest.raises(Stop):
        unem.train(validation, unem.Gaussian(), **run, checkpoint=path, progress=stop_after(3, Stop))
    assert unem.train(validation, unem.Gaussian(), **run, checkpoint=path) == unem.train(
        validation, unem.Gaussian(), **run
    )


def test_learning_and_testing_use_different_tasks(validation):
    from unem.data import TaskSource
    from unem.learning.epochs import HELD_OUT_SEED, TRAINING_SEED

    draws = [
        TaskSource(PROTOCOL, validation, seed=s).draw(0, 50).query_index for s in (0, TRAINING_SEED, HELD_OUT_SEED)
    ]
    assert not any((a == b).all(1).any() for i, a in enumerate(draws) for b in draws[:i])


def test_divergence_is_said(validation):
    with pytest.raises(InputError, match="training diverged"):
        unem.train(validation, unem.Gaussian(), PROTOCOL, **SMALL, learning_rate=1e30, constraints="softplus")
