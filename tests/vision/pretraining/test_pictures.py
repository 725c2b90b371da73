"""Pictures as the network sees them: crops, mirror images, colours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from unem.vision.pretraining import PretrainingConfig, augment, centre
from unem.vision.pretraining.pictures import NUMBERS

Image = pytest.importorskip("PIL.Image")
PLAIN = PretrainingConfig(size=16, crop=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=0.0)


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
