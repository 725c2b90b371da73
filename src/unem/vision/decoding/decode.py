"""From a file to pixels, whatever the file holds: an RGB image, or an :class:`ImageError` that says why not."""

from __future__ import annotations

import io
import os
import stat
import threading
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from unem.errors import InputError

__all__ = ["MAX_PIXELS", "ImageError", "open_image", "read_file"]

MAX_PIXELS = 178_000_000
"""Pixels of an image, the limit everywhere: beyond, Pillow itself refuses. Telephones make photographs of 108 million;
as RGB the largest takes 534 MB, and a JPEG is decoded smaller."""
DEEP = 8
LARGE = 1 << 24  # pixels; images beyond are decoded one at a time, else their number would decide the memory
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "JPEG2000", "AVIF")
# Transposition for each EXIF orientation: a photograph is shown as it was taken, not as the sensor lay.
TURNED = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
WITH_ALPHA = ("RGBA", "LA", "PA", "La", "RGBa")

_opening = threading.Lock()
one_large: AbstractContextManager[Any] = threading.Semaphore()
"""What large images wait for; a process that decodes for another asks that one instead."""


class ImageError(InputError):
    """A file that is not a usable image; the message says why."""


def open_image(
    source: str | os.PathLike[str] | bytes, *, at_least: int | None = None, max_pixels: int = MAX_PIXELS
) -> Any:
    """An image as a ``PIL.Image`` in RGB, upright: the first frame, on white where it is transparent.

    Args:
        source: a file, or the content of one.
        at_least: sides that are enough; a JPEG larger than that by half and more is decoded smaller, which is much
            faster.
        max_pixels: more than these are refused before anything is decoded. A JPEG that is decoded smaller counts as
            what it becomes; not a progressive one, all of which is in memory while it is decoded.

    Example:
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("LA", (4, 3), (0, 0)).save(file, "PNG")
        >>> image = open_image(file.getvalue())
        >>> image.mode, image.size, image.getpixel((0, 0))
        ('RGB', (4, 3), (255, 255, 255))
        >>> open_image(b"<!DOCTYPE html><html>")
        Traceback (most recent call last):
        ...
        unem.vision.decoding.decode.ImageError: is an HTML page, not an image
    """
    with _stream(source) as stream:
        try:
            return _decoded(stream, at_least, max_pixels)
        except ImageError:
            raise
        except MemoryError:
            raise ImageError("needs more memory than there is") from None
        except Exception as error:  # Pillow's plugins raise whatever a damaged file leads them into
            raise ImageError(f"is damaged or incomplete ({_reason(error)})") from None


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The content of a file that :func:`open_image` would open, for decoding it elsewhere."""
    with _stream(path) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise ImageError(f"cannot be read ({_reason(error)})") from None


def _stream(source: str | os.PathLike[str] | bytes) -> IO[bytes]:
    if isinstance(source, bytes | bytearray | memoryview):
        return _not_empty(io.BytesIO(source), len(source))
    try:
        status = Path(source).stat()
        # A pipe is not opened: that would wait for ever.
        stream = open(source, "rb") if stat.S_ISREG(status.st_mode) else None  # noqa: SIM115  the caller closes it
    except FileNotFoundError:
        raise ImageError("does not exist") from None
    except PermissionError:
        raise ImageError("cannot be read: permission denied") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        raise ImageError(f"cannot be read ({_reason(error)})") from None
    if stream is None:
        raise ImageError("is a folder" if stat.S_ISDIR(status.st_mode) else "is not a file")
    return _not_empty(stream, status.st_size)


def _not_empty(stream: IO[bytes], size: int) -> IO[bytes]:
    if size == 0:
        stream.close()
        raise ImageError("is empty")
    return stream


def _decoded(stream: IO[bytes], at_least: int | None, max_pixels: int) -> Any:
    image = _opened(stream)
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageError(f"has no pixels ({width} × {height})")
    if image.mode[0] in "IF":
        max_pixels //= DEEP  # their values are worked on in double precision
    if at_least is not None and image.format in ("JPEG", "MPO"):
        image.draft(None, (at_least, at_least))
    decoded = width * height if image.info.get("progressive") else image.width * image.height
    if decoded > max_pixels or width * height > MAX_PIXELS:
        most = max_pixels if decoded > max_pixels else MAX_PIXELS
        raise ImageError(
            f"has {width} × {height} pixels, more than the {most / 1e6:g} million that are read (a decompression "
            "bomb, or an image to be made smaller)"
        )
    with one_large if decoded > LARGE else nullcontext():
        image.load()
        return _upright(_as_rgb(image), _orientation(image))


def _opened(stream: IO[bytes]) -> Any:
    from PIL import Image, UnidentifiedImageError

    _silence()
    try:
        return Image.open(stream, formats=_formats())
    except UnidentifiedImageError:
        stream.seek(0)
        start = stream.read(256).lstrip().lower()
        if start.startswith((b"<!doctype html", b"<html", b"<head")):
            raise ImageError("is an HTML page, not an image") from None
        raise ImageError("is not an image of a known format") from None
    except Image.DecompressionBombError:
        raise ImageError(
            f"has more than the {MAX_PIXELS / 1e6:g} million pixels that are read (a decompression bomb, or an image "
            "to be made smaller)"
        ) from None


@cache
def _formats() -> tuple[str, ...]:
    """Those that this Pillow can read. Others, such as EPS, would start programs."""
    from PIL import Image

    with _opening:
        Image.init()
    return tuple(f for f in FORMATS if f in Image.OPEN)


def _silence() -> None:
    """What Pillow would warn of is an error here or of no account; a filter for a time is not safe with threads."""
    if not any(f[0] == "ignore" and f[3] is not None and f[3].pattern == r"PIL\." for f in warnings.filters[:2]):
        warnings.filterwarnings("ignore", module=r"PIL\.")


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0][:120]


# -- pixels ------------------------------------------------------------------------------------------------------------


def _as_rgb(image: Any) -> Any:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode[0] in "IF":
        return _from_depth(image)
    if image.mode in WITH_ALPHA or "transparency" in image.info:
        try:
            return _on_white(image.convert("RGBA"))
        except (ValueError, TypeError, OSError):  # a transparent colour that the image cannot have
            image.info.pop("transparency", None)
    return image.convert("RGB")


def _on_white(image: Any) -> Any:
    from PIL import Image

    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def _from_depth(image: Any) -> Any:
    """More than 8 bits: 65535 is white; beyond 16 bits, and real numbers, go from least to greatest value."""
    from PIL import Image

    values = np.nan_to_num(np.asarray(image).astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    least, most = float(values.min()), float(values.max())
    if image.mode[0] == "I" and least >= 0 and most <= 65535:
        values = values / 257
    elif image.mode[0] == "F" and least >= 0 and most <= 1:
        values = values * 255
    elif least < 0 or most > 255:
        values = (values - least) * (255 / (most - least)) if most > least else np.zeros_like(values)
    return Image.fromarray(np.round(values).clip(0, 255).astype(np.uint8), "L").convert("RGB")


def _orientation(image: Any) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # a damaged EXIF block says nothing of the pixels
        return 1


def _upright(image: Any, orientation: int) -> Any:
    return image.transpose(TURNED[orientation]) if orientation in TURNED else image
