"""Pre-training: pictures as the network sees them, the loss, the schedule, and runs that stop and go on."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from typer.testing import CliRunner

from unem.cli import app
from unem.errors import InputError
from unem.vision.datasets import images_of
from unem.vision.images import ImageTensors, load_pixels, split_classes
from unem.vision.images.listing import ImageList
from unem.vision.networks import Network, digest, load_checkpoint
from unem.vision.pretraining.run import (
    NUMBERS,
    PretrainingConfig,
    _Classifier,
    _Run,
    _State,
    augment,
    centre,
    features_of,
    pretrain,
    stored_size,
    validation_protocol,
)

Image = pytest.importorskip("PIL.Image")
ROOT = Path(__file__).resolve().parents[3]
PLAIN = PretrainingConfig(size=16, crop=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=0.0)


def coloured(count: int, classes: int, side: int = 18, seed: int = 0) -> ImageTensors:
    """Noisy pictures; a class has a colour."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    hue = torch.rand(classes, 3, 1, 1, generator=generator) * 200
    noise = torch.rand(count, 3, side, side, generator=generator) * 55
    return ImageTensors((hue[labels] + noise).to(torch.uint8), labels, name="coloured")


def open_plainly(path):
    with Image.open(path) as image:
        return image.convert("RGB")


class Tiny(Network):
    """A network that a test can train in no time."""

    name, dim = "tiny", 8

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.size = size
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8)

    def maps(self, images):
        return F.relu(self.norm(self.conv(images)))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setitem(__import__("unem.vision.networks").networks.NETWORKS, "tiny", Tiny)
    return PretrainingConfig(network="tiny", size=16, epochs=4, batch_size=8, validation_tasks=5)


# -- pictures -------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    st.integers(9, 40),
    st.integers(9, 40),
    st.integers(8, 40),
    st.floats(0.01, 1),
    st.floats(0, 1),
    st.integers(0, 2**31),
)
def test_augmented_pictures_are_pictures(height, width, size, smallest, jitter, seed):
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (3, 3, height, width), dtype=torch.uint8, generator=generator)
    numbers = torch.rand(3, NUMBERS, generator=generator)
    config = PretrainingConfig(size=size, crop=(smallest, 1.0), jitter=jitter)
    values = augment(pixels, numbers, config)
    assert values.shape == (3, 3, size, size)
    assert values.dtype == torch.float32
    assert 0 <= values.min() <= values.max() <= 1
    assert torch.equal(values, augment(pixels, numbers, config))  # the numbers decide everything
    alone = augment(pixels[1:2], numbers[1:2], config)  # and each picture has its own
    torch.testing.assert_close(values[1:2], alone)


def test_augmentation_that_is_off_changes_nothing():
    pixels = torch.randint(256, (4, 3, 16, 16), dtype=torch.uint8)
    numbers = torch.rand(4, NUMBERS)
    assert torch.equal(augment(pixels, numbers, replace(PLAIN, augmentation=False)), pixels / 255)
    torch.testing.assert_close(augment(pixels, numbers, PLAIN), pixels / 255, atol=1e-5, rtol=0)


def test_a_mirror_image_is_one():
    pixels = torch.randint(256, (2, 3, 16, 16), dtype=torch.uint8)
    mirrored = augment(pixels, torch.rand(2, NUMBERS), replace(PLAIN, flip=1.0))
    torch.testing.assert_close(mirrored, (pixels / 255).flip(3), atol=1e-5, rtol=0)


def test_a_crop_is_what_torch_resizes():
    """A quarter of the area at the upper right, against slicing and interpolation."""
    pixels = torch.randint(256, (1, 3, 32, 32), dtype=torch.uint8)
    numbers = torch.tensor([[0.5, 0.5, 1.0, 0.0, 0.9, 0.5, 0.5, 0.5]])
    config = replace(PLAIN, crop=(0.25, 0.25), size=48)
    wanted = F.interpolate(pixels[:, :, :16, 16:] / 255, (48, 48), mode="bilinear", align_corners=False)
    got = augment(pixels, numbers, config)
    inner = slice(3, -3)  # at the crop's own border the one sees the neighbours, the other does not
    torch.testing.assert_close(got[..., inner, inner], wanted[..., inner, inner], atol=1e-5, rtol=0)


def test_colours_against_pillow():
    """Brightness, contrast and saturation one after another, as Pillow's enhancers have them."""
    from PIL import ImageEnhance

    pixels = torch.randint(60, 200, (1, 3, 16, 16), dtype=torch.uint8)
    numbers = torch.tensor([[0.0, 0.0, 0.0, 0.0, 0.9, 0.75, 0.25, 0.9]])
    picture = Image.fromarray(pixels[0].permute(1, 2, 0).numpy())
    for enhancer, number in zip(
        (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color), (0.75, 0.25, 0.9), strict=True
    ):
        picture = enhancer(picture).enhance(0.6 + 0.8 * number)
    wanted = torch.as_tensor(np.array(picture)).permute(2, 0, 1) / 255
    got = augment(pixels, numbers, replace(PLAIN, jitter=0.4))[0]
    assert (got - wanted).abs().max() < 4 / 255  # Pillow rounds to bytes each time


@pytest.mark.parametrize("side", [12, 16, 17, 24])
def test_the_middle_of_pictures(side):
    pixels = torch.randint(256, (2, 3, side, side + 3), dtype=torch.uint8)
    values = centre(pixels, 16)
    assert values.shape == (2, 3, 16, 16)
    if side >= 16:
        top, left = (side - 16) // 2, (side + 3 - 16) // 2
        assert torch.equal(values, pixels[:, :, top : top + 16, left : left + 16] / 255)


# -- settings -------------------------------------------------------------------------------------------------------------


def test_the_papers_schedule():
    rates = [PretrainingConfig().rate(epoch) for epoch in range(90)]
    assert rates == pytest.approx([0.1] * 45 + [0.01] * 21 + [0.001] * 24)
    assert PretrainingConfig(epochs=1).rate(0) == 0.1
    assert [PretrainingConfig(epochs=4, decay_at=(0.25, 1.0)).rate(e) for e in range(4)] == pytest.approx(
        [0.1] + [0.01] * 3
    )


def test_the_rate_rises_step_by_step(tiny):
    config = PretrainingConfig(warm_up=2, epochs=10)
    assert [config.rate(0, 0.25), config.rate(0), config.rate(1, 0.5), config.rate(1), config.rate(2)] == pytest.approx(
        [0.0125, 0.05, 0.075, 0.1, 0.1]
    )
    rates = []
    run = _Run(coloured(24, 3), None, replace(tiny, warm_up=2), torch.device("cpu"), False)
    original = run._step
    run._step = lambda *args: (rates.append(run.optimiser.param_groups[0]["lr"]), original(*args))[1]
    run._learn(_State(epoch=1), None)
    assert rates == pytest.approx([0.1 * (1 + n / 3) / 2 for n in (1, 2, 3)])


@pytest.mark.parametrize(
    "change",
    [
        {"network": "vgg"},
        {"epochs": 0},
        {"batch_size": 2.5},
        {"learning_rate": math.nan},
        {"momentum": 1.1},
        {"weight_decay": -1},
        {"label_smoothing": -0.1},
        {"crop": (0.5, 0.2)},
        {"crop": (0.5, 1.2)},
        {"ratio": (0.0, 1.0)},
        {"flip": 2},
        {"decay_at": (0, 0.5)},
        {"precision": "half"},
        {"size": True},
    ],
)
def test_settings_that_cannot_be_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        PretrainingConfig(**change)


# -- runs -----------------------------------------------------------------------------------------------------------------


def test_a_step_is_torchs(tiny):
    """One step of the run, against the loss with smoothed targets and gradient descent written out."""
    images = coloured(8, 2, side=16)
    config = replace(tiny, augmentation=False, weight_decay=0.01, learning_rate=0.05)
    run = _Run(images, None, config, torch.device("cpu"), False)
    model = _Classifier(Tiny(), 2)
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
    run = _Run(images, None, tiny, torch.device("cpu"), False)
    values = images.pixels.double() / 255
    assert run.mean == pytest.approx(values.mean((0, 2, 3)).tolist(), abs=1e-5)
    assert run.std == pytest.approx(values.transpose(0, 1).flatten(1).std(1, correction=0).tolist(), abs=1e-5)


def test_resnet_learns_eight_pictures_by_heart():
    images = ImageTensors(torch.randint(256, (8, 3, 16, 16), dtype=torch.uint8), torch.arange(8) % 4)
    config = replace(PLAIN, epochs=12, batch_size=8, learning_rate=0.02, decay_at=())
    history = pretrain(images, config).history
    assert history[-1].accuracy == 100
    assert history[-1].loss < history[0].loss / 1.8  # smoothed targets leave some


def test_each_epoch_sees_every_image_once(tiny):
    run = _Run(coloured(24, 3), None, tiny, torch.device("cpu"), False)
    first, second = run._order(0), run._order(1)
    assert first[0].sort().values.tolist() == list(range(24))
    assert not torch.equal(first[0], second[0])
    assert not torch.equal(first[1], second[1])
    assert torch.equal(first[1], run._order(0)[1])
    other = _Run(coloured(24, 3), None, replace(tiny, seed=1), torch.device("cpu"), False)
    assert not torch.equal(first[0], other._order(0)[0])


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 3))
def test_balanced_order(sizes, repeats):
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    images = ImageTensors(torch.zeros(len(labels), 3, 16, 16, dtype=torch.uint8), labels)
    run = object.__new__(_Run)
    run.images, run.device = images, torch.device("cpu")
    run.config = PretrainingConfig(balanced=True, repeats=repeats)
    order, numbers = run._order(0)
    each = -(-sum(sizes) * repeats // len(sizes))
    assert torch.bincount(labels[order]).tolist() == [each] * len(sizes)
    assert len(numbers) == len(order)
    times = torch.bincount(order, minlength=len(labels))
    for label in range(len(sizes)):  # nobody comes twice before all have come
        assert times[labels == label].max() - times[labels == label].min() <= 1


class _Stop:
    """Raises Ctrl-C in the middle of an epoch."""

    def __init__(self, epoch):
        self.epoch = epoch

    def __call__(self, now):
        if now.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("validated", [True, False])
def test_a_resumed_run_is_the_uninterrupted_one(tiny, tmp_path, validated):
    images = coloured(30, 3)
    validation = coloured(24, 4, seed=5) if validated else None
    whole = pretrain(images, tiny, validation=validation)
    path = tmp_path / "checkpoint.safetensors"
    for epoch in (2, 4):  # stopped twice
        stopped = pretrain(images, tiny, validation=validation, checkpoint=path, on_progress=_Stop(epoch))
        assert stopped.interrupted
        assert len(stopped.history) == epoch - 1
    resumed = pretrain(images, tiny, validation=validation, checkpoint=path)
    assert not resumed.interrupted
    assert digest(resumed.network) == digest(whole.network)
    timeless = [[replace(e, seconds=0) for e in r.history] for r in (resumed, whole)]
    assert str(timeless[0]) == str(timeless[1])  # as text: NaN is not equal to itself
    assert resumed.info == whole.info
    again = pretrain(images, tiny, validation=validation, checkpoint=path)  # nothing left to do
    assert digest(again.network) == digest(whole.network)


def test_a_resumed_resnet_is_bit_identical(tmp_path):
    """With the real network: its momenta and running means must come back in the layout they had."""
    images = coloured(12, 3)
    config = PretrainingConfig(size=16, epochs=2, batch_size=6)
    path = tmp_path / "checkpoint.safetensors"
    pretrain(images, config, checkpoint=path, on_progress=_Stop(2))
    resumed = pretrain(images, config, checkpoint=path)
    assert digest(resumed.network) == digest(pretrain(images, config).network)


def test_the_best_epoch_is_kept(tiny, monkeypatch):
    scores = iter([30.0, 70.0, 50.0, 60.0])
    monkeypatch.setattr(_Run, "_validate", lambda self: next(scores))
    weights = []
    told = []
    original = _Run.epoch

    def epoch(self, *args):
        done = original(self, *args)
        weights.append(digest(self.model.network))
        return done

    monkeypatch.setattr(_Run, "epoch", epoch)
    result = pretrain(coloured(24, 3), tiny, validation=coloured(24, 4), on_epoch=told.append)
    assert [e.kept for e in told] == [True, True, False, False]
    assert result.info["kept_epoch"] == 2
    assert digest(result.network) == weights[1]


def test_validation_looks_at_centred_features_of_unit_length(tiny):
    """The accuracy, against prototypes written out on the same tasks."""
    from unem.data import Sampler

    images, validation = coloured(30, 3), coloured(40, 4, seed=3)
    run = _Run(images, validation, tiny, torch.device("cpu"), False)
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


def test_validation_tasks_fit_the_images():
    protocol = validation_protocol(coloured(8, 4))
    assert (protocol.shots, protocol.effective_classes, protocol.queries) == (1, 4, 4)
    with pytest.raises(InputError, match="at least 2 classes with at least 2 images"):
        validation_protocol(coloured(4, 4))


def test_progress_is_told(tiny):
    told = []
    pretrain(coloured(24, 3), tiny, on_progress=told.append)
    assert [(p.epoch, p.step) for p in told if p.step == p.steps] == [(e, 3) for e in (1, 2, 3, 4)]
    assert all(p.images_per_second > 0 and p.seconds_left >= 0 and math.isfinite(p.loss) for p in told)
    assert told[-1].seconds_left == 0


def test_a_loss_that_explodes_is_said(tiny):
    with pytest.raises(InputError, match=r"learning_rate: 1e\+30 is too high here"):
        pretrain(coloured(24, 3), tiny, learning_rate=1e30)


def test_checkpoints_of_others_are_refused(tiny, tmp_path):
    images, path = coloured(24, 3), tmp_path / "checkpoint.safetensors"
    pretrain(images, tiny, epochs=1, checkpoint=path)
    with pytest.raises(InputError, match=r"other settings \(different: epochs, seed\)"):
        pretrain(images, tiny, seed=3, checkpoint=path)
    with pytest.raises(InputError, match=r"different: images"):
        pretrain(coloured(24, 3, seed=1), tiny, epochs=1, checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with pytest.raises(InputError, match="is not the checkpoint of a pre-training"):
        pretrain(images, tiny, epochs=1, checkpoint=path)
    path.write_bytes(content)
    from safetensors import safe_open

    with safe_open(path, "pt") as stored:
        metadata = stored.metadata()
    tensors = load_file(path)
    save_file({k: v for k, v in tensors.items() if "conv" not in k}, path, metadata=metadata)
    with pytest.raises(InputError, match="is damaged"):
        pretrain(images, tiny, epochs=1, checkpoint=path)
    save_file(tensors, path)
    with pytest.raises(InputError, match="no checkpoint"):
        pretrain(images, tiny, epochs=1, checkpoint=path)
    assert len(pretrain(images, tiny, epochs=1, checkpoint=path, resume=False).history) == 1


def test_features_from_the_file_are_those_of_the_run(tmp_path):
    images = coloured(12, 3).with_split(["train"] * 6 + ["test"] * 6)
    result = pretrain(images, size=16, epochs=1, batch_size=6)
    result.save(tmp_path / "backbone.safetensors")
    network, info = load_checkpoint(tmp_path / "backbone.safetensors")
    features = result.features(images, base=images)
    assert torch.equal(
        features_of(network, images, info, batch_size=5).features.round(decimals=4), features.features.round(decimals=4)
    )
    assert features.splits == ("test", "train")
    torch.testing.assert_close(features.base_mean, features.features.mean(0))
    assert info["classes"] == ["0", "1", "2"]
    assert not features.features.is_inference()  # they can be learned on


def test_few_classes_are_refused(tiny):
    with pytest.raises(InputError, match="at least 2 base classes"):
        pretrain(coloured(8, 1), tiny)


# -- tables of pixels -----------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for split, name, colour in (
        ("train", "red", (250, 10, 10)),
        ("train", "green", (10, 250, 10)),
        ("val", "blue", (10, 10, 250)),
        ("val", "white", (250, 250, 250)),
    ):
        for number in range(6):
            path = folder / split / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40 + number, 30), colour).save(path)
    return folder


def test_folders_are_read(photos):
    images = images_of(photos)
    assert images.class_names == ("blue", "green", "red", "white")
    (photos / "val" / "white" / "0.png").write_bytes(b"no picture")
    table = load_pixels(images, 20, open_plainly, threads=2)
    assert table.pixels.shape == (23, 3, 20, 20)
    assert list(table.skipped) == ["val/white/0.png"]
    assert table.split("train").class_names == ("green", "red")
    reds = table.pixels[table.labels == table.class_names.index("red")]
    assert (reds == torch.tensor([250, 10, 10], dtype=torch.uint8).view(1, 3, 1, 1)).all()
    plain = images_of(photos / "train")
    assert plain.split_names is None
    assert plain.class_names == ("green", "red")


def test_the_middle_square_is_kept(tmp_path):
    picture = np.zeros((20, 40, 3), np.uint8)
    picture[:, 10:30] = 200
    (tmp_path / "a").mkdir()
    Image.fromarray(picture).save(tmp_path / "a" / "x.png")
    assert (load_pixels(images_of(tmp_path), 10, open_plainly).pixels == 200).all()


def test_nothing_readable_is_an_error(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"none of the 1 files .* can be read \(a/x.png"):
        load_pixels(images_of(tmp_path), 8, open_plainly)
    with pytest.raises(InputError, match="no images with a class"):
        load_pixels(ImageList(tmp_path, ["a/x.png"]), 8, open_plainly)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_tables_of_pixels_are_kept_in_files(tmp_path, ending):
    images = split_classes(coloured(24, 6), 2, 2, 1, seed=1)
    path = tmp_path / f"pixels.{ending}"
    images.save(path)
    again = ImageTensors.load(path)
    assert again.digest == images.digest
    assert again.class_names == images.class_names
    assert again.split_names.tolist() == images.split_names.tolist()
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], b"", content[:-1]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"pixels\."):
            ImageTensors.load(path)
    with pytest.raises(InputError, match="ending"):
        ImageTensors.load(__file__)
    with pytest.raises(InputError, match="ends in"):
        images.save(tmp_path / "pixels.pt")


@given(st.integers(2, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 5))
def test_classes_are_shared_out(base, val, test, seed):
    images = coloured(24, 12, side=8)
    if base + val + test > 12:
        with pytest.raises(InputError, match="cannot take"):
            split_classes(images, base, val, test, seed=seed)
        return
    shared = split_classes(images, base, val, test, seed=seed)
    parts = {name: shared.split(name) for name in shared.splits}
    assert {n: p.num_classes for n, p in parts.items()} == {
        n: c for n, c in (("train", base), ("val", val), ("test", test)) if c
    }
    names = [c for p in parts.values() for c in p.class_names]
    assert len(set(names)) == len(names) == base + val + test
    assert len(shared) == 2 * len(names)


def test_tables_are_joined():
    one = ImageTensors(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0, 1], ["a", "b"], split=["train", "val"])
    two = ImageTensors(torch.ones(2, 3, 8, 8, dtype=torch.uint8), [0, 1], ["c", "a"], split=["train", "train"])
    both = one.joined(two)
    assert both.class_names == ("a", "b", "c")
    assert both.labels.tolist() == [0, 1, 2, 0]
    with pytest.raises(InputError, match="one size only"):
        one.joined(coloured(4, 2))


@pytest.mark.parametrize(
    ("pixels", "labels", "message"),
    [
        (torch.zeros(2, 3, 8, 8), [0, 1], "pixels"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), [0, 1], "pixels"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0], "labels"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0, -1], "labels"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), [0.5, 1], "labels"),
    ],
)
def test_tables_are_checked(pixels, labels, message):
    with pytest.raises(InputError, match=message):
        ImageTensors(pixels, labels)


# -- the command and the script -------------------------------------------------------------------------------------------


def test_the_command(tmp_path, tiny):
    coloured(48, 4).with_split(["train", "train", "val", "val"] * 12).save(tmp_path / "pixels.npz")
    output = tmp_path / "backbone.safetensors"
    command = ["pretrain", str(tmp_path / "pixels.npz"), "-o", str(output), "--network", "tiny", "--size", "16"]
    command += ["--epochs", "2", "--batch-size", "8"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "24 images of 2 base classes, 2 epochs" in " ".join(first.output.split())
    network, info = load_checkpoint(output)
    assert info["classes"] == ["0", "1"]
    assert network.size == 16
    assert not list(tmp_path.glob("*.checkpoint.*"))
    again = CliRunner().invoke(app, command)
    assert "the end of this very run already" in " ".join(again.output.split())
    wrong = CliRunner().invoke(app, [*command, "--split-classes", "9,9"])
    assert wrong.exit_code == 2
    assert CliRunner().invoke(app, [*command, "--network", "vgg"]).exit_code == 2


def test_the_command_goes_on_after_ctrl_c(tmp_path, tiny, monkeypatch):
    coloured(48, 4).save(tmp_path / "pixels.npz")
    output = tmp_path / "backbone.safetensors"
    command = ["pretrain", str(tmp_path / "pixels.npz"), "-o", str(output), "--network", "tiny", "--size", "16"]
    command += ["--epochs", "3", "--split-classes", "2,2,0", "-q"]
    original = _Run._validate
    calls = []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self)

    monkeypatch.setattr(_Run, "_validate", interrupted)
    stopped = CliRunner().invoke(app, command)
    assert stopped.exit_code == 130
    assert "1 of 3 epochs are kept" in " ".join(stopped.output.split())
    assert not output.exists()
    assert CliRunner().invoke(app, command).exit_code == 0
    whole = tmp_path / "whole.safetensors"
    assert CliRunner().invoke(app, [*command, "-o", str(whole)]).exit_code == 0
    assert whole.read_bytes() == output.read_bytes()


def test_the_script_needs_little(tmp_path):
    """From pixels to UNEM's accuracy, where nothing but torch, numpy, safetensors and jaxtyping can be imported."""
    coloured(70, 7, side=32).save(tmp_path / "pixels.npz")
    missing = ["typer", "rich", "matplotlib", "jinja2", "sklearn", "scipy", "PIL", "transformers", "datasets", "ray"]
    script = ROOT / "examples" / "pretrain_to_unem.py"
    arguments = [
        "pretrain_to_unem.py",
        str(tmp_path / "pixels.npz"),
        "--smoke",
        "--classes",
        "3,2,2",
        "-o",
        str(tmp_path / "out"),
    ]
    program = (
        f"import sys, runpy\nfor name in {missing}: sys.modules[name] = None\nsys.argv = {arguments}\n"
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    assert "unem-gaussian" in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {
        "backbone.safetensors",
        "features.safetensors",
        "results.json",
    }


def test_settings_are_plain_values():
    assert PretrainingConfig(**asdict(PretrainingConfig())) == PretrainingConfig()
    assert stored_size(84) == 96
