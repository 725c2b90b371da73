"""Whatever a file holds: an upright RGB image, or an ImageError that says why not."""

from __future__ import annotations

import io
import os
import struct
import threading
import warnings
import zlib
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'unem[images]'")

from PIL import ImageOps  # noqa: E402

from unem.errors import InputError  # noqa: E402
from unem.vision.decoding.decode import MAX_PIXELS, ImageError, open_image, read_file  # noqa: E402


def picture(width=9, height=6, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(image):
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_upright(kind, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = saved(picture(), kind, exif=exif)
    expected = Image.open(io.BytesIO(content))
    expected.load()
    expected = ImageOps.exif_transpose(expected).convert("RGB")
    assert np.array_equal(pixels(open_image(content)), pixels(expected))


def test_sixteen_bits_keep_their_scale():
    values = np.array([[0, 257, 65535], [32896, 128, 129]], dtype=np.uint16)
    for kind in ("PNG", "TIFF"):
        found = pixels(open_image(saved(Image.fromarray(values), kind)))
        assert (found == np.round(values / 257)[..., None]).all()


def test_real_numbers():
    unit = Image.fromarray(np.array([[0.0, 0.5, 1.0]], dtype=np.float32))
    assert pixels(open_image(saved(unit, "TIFF")))[0, :, 0].tolist() == [0, 128, 255]
    wide = Image.fromarray(np.array([[-10.0, np.nan, 1000.0, np.inf]], dtype=np.float32))
    assert pixels(open_image(saved(wide, "TIFF")))[0, [0, 2], 0].tolist() == [0, 255]


def test_alpha_is_on_white():
    image = Image.new("RGBA", (2, 1), (200, 0, 0, 0))
    image.putpixel((1, 0), (200, 0, 0, 255))
    for kind in ("PNG", "WEBP"):
        found = pixels(open_image(saved(image, kind, **({"lossless": True} if kind == "WEBP" else {}))))
        assert found[0].tolist() == [[255, 255, 255], [200, 0, 0]]


def test_palette_with_a_transparent_colour():
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    found = pixels(open_image(saved(image, "PNG", transparency=0)))
    assert found[0].tolist() == [[255, 255, 255], [40, 50, 60]]
    assert pixels(open_image(saved(image, "GIF")))[0].tolist() == [[10, 20, 30], [40, 50, 60]]


def test_the_colour_of_an_rgb_image_that_is_transparent():
    image = Image.new("RGB", (2, 1), (1, 2, 3))
    image.putpixel((1, 0), (7, 8, 9))
    found = pixels(open_image(saved(image, "PNG", transparency=(1, 2, 3))))
    assert found[0].tolist() == [[255, 255, 255], [7, 8, 9]]


def test_cmyk_and_other_modes():
    cmyk = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    red = pixels(open_image(saved(cmyk, "JPEG", quality=95)))
    assert red[..., 0].min() > 230
    assert red[..., 1:].max() < 25
    for mode in ("1", "L", "LA", "P", "RGBA", "I;16"):
        assert open_image(saved(Image.new(mode, (5, 4)))).mode == "RGB"


def test_animations_show_their_first_frame():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "WEBP", "PNG", "TIFF"):
        content = saved(frames[0], kind, save_all=True, append_images=frames[1:])
        assert pixels(open_image(content))[0, 0, 0] > 240


def test_large_photographs_are_decoded_smaller():
    content = saved(picture(640, 480), "JPEG")
    assert open_image(content).size == (640, 480)
    assert open_image(content, at_least=100).size == (160, 120)
    assert open_image(content, at_least=300).size == (640, 480)


def bomb(width, height):
    """A PNG of a few bytes that says it is very large."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99)) + chunk(b"IEND", b"")
    )


HOSTILE = {
    "is empty": b"",
    "HTML": b"\n<!DOCTYPE html><html><body>404</body></html>",
    "not an image": b"just words",
    "damaged or incomplete": saved(picture(200, 200), "JPEG")[:2000],
    "million that are read": bomb(16_000, 11_150),
    "million pixels that are read": bomb(100_000, 100_000),
    "known format": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",  # would start a program
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_what_is_refused_and_why(reason):
    with pytest.raises(ImageError, match=reason):
        open_image(HOSTILE[reason])


def test_files_that_are_none(tmp_path):
    (tmp_path / "empty.jpg").touch()
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    (tmp_path / "good.png").write_bytes(saved(picture()))
    expected = {
        "empty": "^is empty",
        "pipe": "^is not a file",
        "folder": "^is a folder",
        "nowhere": "not exist",
        "a\0b": "read",
        "loop": "read",
    }
    for name, reason in expected.items():
        for opener in (open_image, read_file):
            with pytest.raises(ImageError, match=reason):
                opener(tmp_path / f"{name}.jpg")
    assert issubclass(ImageError, InputError)
    assert open_image(read_file(tmp_path / "good.png")).size == open_image(str(tmp_path / "good.png")).size


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(tmp_path):
    (tmp_path / "secret.png").write_bytes(saved(picture()))
    (tmp_path / "secret.png").chmod(0)
    with pytest.raises(ImageError, match="permission denied"):
        open_image(tmp_path / "secret.png")


def test_permission_denied_is_said(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    (tmp_path / "secret.png").touch()
    os.truncate(tmp_path / "secret.png", 5)
    with pytest.raises(ImageError, match="permission denied"):
        open_image(tmp_path / "secret.png")


def test_a_damaged_exif_block_does_not_matter():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = bytearray(saved(picture(), "JPEG", exif=exif))
    start = content.index(b"Exif") + 6
    content[start + 4 : start + 20] = b"\xff" * 16
    assert open_image(bytes(content)).size == (9, 6)


@cache
def seeds():
    exif = Image.Exif()
    exif[0x0112] = 3
    image = picture(24, 17)
    kinds = {
        "JPEG": {"exif": exif},
        "PNG": {"exif": exif},
        "WEBP": {},
        "BMP": {},
        "TIFF": {},
        "GIF": {},
        "PPM": {},
        "JPEG2000": {},
    }
    contents = [saved(image, kind, **options) for kind, options in kinds.items()]
    contents.append(saved(image.convert("CMYK"), "JPEG"))
    contents.append(saved(image, "TIFF", compression="tiff_lzw"))
    contents.append(saved(Image.fromarray(np.arange(400, dtype=np.uint16).reshape(20, 20)), "PNG"))
    contents.append(saved(image.convert("P"), "PNG", transparency=3))
    return contents


@given(data=st.data())
def test_mutated_files_raise_nothing_else(data):
    content = bytearray(data.draw(st.sampled_from(seeds())))
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(1, len(content))) :]
    check(bytes(content))


@given(st.binary(max_size=200))
def test_any_bytes_raise_nothing_else(content):
    check(content)


def check(content):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            image = open_image(content)
        except ImageError as error:
            assert str(error)
        else:
            assert image.mode == "RGB"
            assert min(image.size) > 0


def test_threads_do_not_disturb_each_other():
    contents = [saved(picture(seed=i), "JPEG") for i in range(4)]
    alone = [pixels(open_image(c)) for c in contents]
    wrong = []

    def work(i):
        for _ in range(30):
            if not np.array_equal(pixels(open_image(contents[i])), alone[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_photograph_of_108_million_pixels_is_read():
    """Telephones make them; one value of grey, so that the file is small."""
    content = saved(Image.new("L", (12000, 9000), 7), "JPEG")
    assert open_image(content, at_least=512).size == (1500, 1125)  # decoded smaller: no memory for all of it
    assert MAX_PIXELS >= 12000 * 9000


def test_the_limit_is_of_pixels_as_they_are_decoded():
    plain, whole = (saved(Image.new("L", (4000, 3000), 7), "JPEG", progressive=p) for p in (False, True))
    assert open_image(plain, at_least=300, max_pixels=1_000_000).size == (500, 375)
    with pytest.raises(ImageError, match="4000 × 3000 pixels, more than the 1 million"):
        open_image(plain, max_pixels=1_000_000)
    with pytest.raises(ImageError, match="4000 × 3000 pixels, more than the 1 million"):  # all of it would be in memory
        open_image(whole, at_least=300, max_pixels=1_000_000)


def test_more_pixels_than_the_limit_are_refused_by_the_header():
    with pytest.raises(ImageError, match=r"has 20 × 30 pixels, more than the 0\.0001 million that are read"):
        open_image(saved(Image.new("L", (20, 30)), "PNG"), max_pixels=100)


def test_images_of_more_than_8_bits_have_a_lower_limit():
    """In double precision as many pixels would take eight times the memory."""
    deep = saved(Image.new("I;16", (20, 30)), "TIFF")
    assert open_image(deep, max_pixels=8 * 600).size == (20, 30)
    with pytest.raises(ImageError, match="more than"):
        open_image(deep, max_pixels=8 * 600 - 1)
