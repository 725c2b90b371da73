"""What a decoding process runs: files come in as lines of JSON; problems, as such a line, and pixels go out."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import numpy as np

from unem.vision.decoding import Preprocessing, decode, prepare
from unem.vision.decoding.processes import LARGE_IMAGE

__all__ = ["main"]


def main() -> None:
    """Serve until the other end closes: the other process decides when to stop, also when the terminal interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    link = _Link(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whatever prints must not disturb the answers
    _serve(link)


class _Link:
    """The two pipes to the other process."""

    def __init__(self, answers: IO[bytes]) -> None:
        self.answers = answers
        self.orders: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """When the other process is gone nobody wants the work: stop at once, in the middle of it."""
        for line in sys.stdin.buffer:
            self.orders.put(line)
        os._exit(0)

    def hear(self) -> Any:
        return json.loads(self.orders.get())

    def say(self, message: Any, pixels: Any = b"") -> None:
        try:
            self.answers.write(json.dumps(message).encode() + b"\n")
            self.answers.write(pixels)
            self.answers.flush()
        except BrokenPipeError:
            os._exit(0)


class _Turn:
    """The other process lets one large image be decoded at a time, in all of its processes and threads."""

    def __init__(self, link: _Link) -> None:
        self.link = link

    def __enter__(self) -> None:
        self.link.say(LARGE_IMAGE)
        self.link.hear()

    def __exit__(self, *_: object) -> None:
        self.link.say(LARGE_IMAGE)


def _serve(link: _Link) -> None:
    from PIL import Image, ImageFile

    settings = link.hear()
    preprocessing = Preprocessing(**settings["preprocessing"])
    Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES = settings["pillow"]
    decode.one_large = _Turn(link)
    while True:
        files = [Path(file) for file in link.hear()]
        pixels = np.zeros((len(files), preprocessing.size, preprocessing.size, 3), np.uint8)
        link.say(prepare(files, pixels, preprocessing), pixels.data)


if __name__ == "__main__":
    main()
