"""A network computed by onnxruntime: the features of torch, or torch itself."""

from __future__ import annotations

import pytest
import torch

import unem.vision.backbones.onnx_program as onnx_program
from unem.core.numerics.backends import plain_torch
from unem.errors import InputError
from unem.inference import FeatureCache
from unem.vision.backbones import create
from unem.vision.extraction import LocalEngine

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "unem" / "onnx"


def test_the_default_backbone_has_the_features_of_torch(own_cache):
    fast, plain = create("auto", size=64), create("auto", size=64, runtime="torch")
    assert (fast.runtime, plain.runtime, fast.digest == plain.digest) == ("onnxruntime", "torch", True)
    images = torch.randn(5, 3, 64, 64)
    expected = plain.encode_images(images)
    distance = (fast.encode_images(images) - expected).norm(dim=1) / expected.norm(dim=1)
    assert distance.max() < onnx_program.TOLERANCE
    assert not fast.module.training


def test_caches_know_the_runtime(tmp_path):
    fast, plain = create("auto", size=64), create("auto", size=64, runtime="torch")
    assert FeatureCache(tmp_path, fast).folder != FeatureCache(tmp_path, plain).folder
    assert LocalEngine(fast).settings != LocalEngine(plain).settings


def test_a_program_is_made_once(own_cache, monkeypatch):
    create("auto", size=64)
    (file,) = own_cache.iterdir()
    whole = file.read_bytes()
    export = onnx_program._exported
    monkeypatch.setattr(onnx_program, "_exported", lambda *_: pytest.fail("made again"))
    assert create("auto", size=64).runtime == "onnxruntime"
    monkeypatch.setattr(onnx_program, "_exported", export)
    middle = len(whole) // 2
    for damaged in (b"damaged", whole[:middle] + bytes([whole[middle] ^ 64]) + whole[middle + 1 :]):
        file.write_bytes(damaged)
        assert create("auto", size=64).runtime == "onnxruntime"
        assert file.read_bytes() == whole


def test_a_program_that_is_wrong_is_not_used(own_cache, monkeypatch):
    export = onnx_program._exported
    monkeypatch.setattr(onnx_program, "_exported", lambda network, *rest: export(lambda x: network(x) * 1.001, *rest))
    assert create("auto", size=64).runtime == "torch"
    assert not own_cache.exists()


def test_torch_serves_where_a_package_is_missing(monkeypatch):
    monkeypatch.setattr(onnx_program, "is_installed", lambda name: name != "onnxruntime")
    assert create("auto", size=64).runtime == "torch"
    with pytest.raises(InputError, match=r"runtime: .* cannot be computed by onnxruntime here; it needs pip install"):
        create("auto", size=64, runtime="onnxruntime")


def test_what_may_be_asked_for():
    with plain_torch():
        assert create("auto", size=64).runtime == "torch"
    assert create("auto", size=64, precision="bfloat16").runtime == "torch"
    with pytest.raises(InputError, match="it needs float32 on a CPU"):
        create("auto", size=64, precision="bfloat16", runtime="onnxruntime")
    with pytest.raises(InputError, match="runtime: expected auto, torch, onnxruntime, got 'magic'"):
        create("auto", runtime="magic")
