"""How much visitors may send, and a ledger of how much the server holds."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from unem.errors import InputError
from unem.vision.images import MAX_PIXELS

__all__ = ["MB", "Holding", "Limits", "Room"]

MB = 1_000_000
PER_IMAGE = 30_000
"""Bytes that an image needs beside its file: its thumbnail, its features, its probabilities."""


@dataclass(frozen=True)
class Limits:
    """What one visitor may send; each number is checked before anything is unpacked or allocated.

    Args:
        upload: bytes of one file.
        images: images of one side (support or query).
        pixels: pixels of one image as it is decoded, which is what takes memory. A photograph as a JPEG is decoded
            smaller, and may have as many as :data:`unem.vision.images.MAX_PIXELS`.
        unpacked: bytes of all files of one side, unpacked.
        ratio: how many times its size a member of an archive may unpack to; photographs do not compress.
        held: bytes of all visitors together.
        classes: classes.
        rows: rows of a feature file.
        columns: features of a row.
        label_values: how large a label of a feature file may be.
        rate: bytes a second that an upload must bring.
        patience: seconds that an upload may be slower than that, or silent.
        at_once: files that one visitor may send at the same time.
    """

    upload: int = 200 * MB
    images: int = 2000
    pixels: int = 50 * MB
    unpacked: int = 400 * MB
    ratio: int = 100
    held: int = 2000 * MB
    classes: int = 500
    rows: int = 5000
    columns: int = 4096
    label_values: int = 10_000
    rate: float = 10_000.0
    patience: float = 10.0
    at_once: int = 3

    @classmethod
    def of(cls, upload_mb: int, images: int, megapixels: float = 50) -> Limits:
        """From what the command line says."""
        for name, value in (("max_upload_mb", upload_mb), ("max_images", images), ("max_megapixels", megapixels)):
            if not value > 0:
                raise InputError(f"{name}: expected more than 0, got {value}")
        if megapixels * MB > MAX_PIXELS:
            raise InputError(f"max_megapixels: expected at most {MAX_PIXELS / MB:g}, got {megapixels:g}")
        upload = upload_mb * MB
        return cls(upload, images, int(megapixels * MB), 2 * upload, held=max(2000 * MB, 4 * upload))


class Room:
    """Memory that the server may hold for all visitors together; more is refused before it is allocated."""

    def __init__(self, size: int) -> None:
        self.size, self._held, self._lock = size, 0, threading.Lock()

    @property
    def free(self) -> int:
        return self.size - self._held

    def move(self, change: int) -> None:
        """Take bytes, or give them back."""
        with self._lock:
            if change > 0 and self._held + change > self.size:
                raise InputError("The server has no room left for now; try again later.")
            self._held += change


class Holding:
    """The part of the room that one visitor has.

    Example:
        >>> room = Room(100)
        >>> mine = Holding(room)
        >>> mine.take(60)
        >>> Holding(room).take(60)
        Traceback (most recent call last):
        ...
        unem.errors.InputError: The server has no room left for now; try again later.
        >>> mine.give(mine.size), room.free
        (None, 100)
    """

    def __init__(self, room: Room) -> None:
        self.room, self.size, self._closed, self._lock = room, 0, False, threading.Lock()

    def take(self, size: int) -> None:
        """Reserve bytes, before they are allocated."""
        with self._lock:
            if self._closed:
                raise InputError("Everything of this visit has been removed. Please reload the page.")
            self.room.move(size)
            self.size += size

    def give(self, size: int) -> None:
        with self._lock:
            size = min(size, self.size)
            self.room.move(-size)
            self.size -= size

    def close(self) -> None:
        """Give all back, for good."""
        self.give(self.size)
        self._closed = True
