"""Features of a user's images, computed once."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from PIL import Image

from helpers.photographs import Tones, draw
from unem.inference import image_features, query_images


def test_only_what_changed_is_computed_again(photos):
    cache, model = photos / "cache", Tones()
    images = query_images(photos / "many")
    first = image_features(images, model, cache=cache)
    assert (model.seen, first.cached) == (9, 0)
    again = image_features(images, model, cache=cache)
    assert (model.seen, again.cached) == (9, 9)
    assert torch.equal(again.features, first.features)
    draw(photos / "many" / "a new one.png", "sky", 7)  # comes first: every row moves
    draw(photos / "many" / "rust-0.png", "leaf", 8)  # changed
    (photos / "many" / "none.png").write_text("no")
    images = query_images(photos / "many")
    third = image_features(images, model, cache=cache)
    assert (model.seen - 9, third.cached, len(third.failures)) == (3, 8, 1)
    fresh = image_features(images, Tones())
    assert torch.allclose(third.features, fresh.features, atol=1e-6)
    assert third.images.paths == fresh.images.paths
    for pack in cache.rglob("*.safetensors"):
        pack.write_bytes(b"damaged")
    assert torch.allclose(image_features(images, Tones(), cache=cache).features, fresh.features, atol=1e-6)


def test_another_backbone_has_its_own_features(photos):
    images, one, two = query_images(photos / "many"), Tones(), Tones()
    image_features(images, one, cache=photos / "cache")
    two.module.weight.data += 1  # another digest
    image_features(images, two, cache=photos / "cache")
    assert two.seen == 9


def test_a_run_that_is_stopped_goes_on(tmp_path):
    for i in range(530):
        Image.new("RGB", (8, 8), (i % 250, 40, 90)).save(tmp_path / f"{i:03d}.png", compress_level=0)
    images, cache = query_images(tmp_path), tmp_path / "cache"

    def stop(now):
        if now.done > 515:
            raise KeyboardInterrupt

    model = Tones()
    with pytest.raises(KeyboardInterrupt):
        image_features(images, model, cache=cache, progress=stop)
    model.seen = 0
    found = image_features(images, model, cache=cache)
    assert model.seen == 530 - 512
    assert torch.equal(found.features, image_features(images, model).features)
    assert not list(cache.rglob("parts/*"))
