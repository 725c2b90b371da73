"""Processes that decode images for this one; what they run is in ``worker``.

Lines of JSON go both ways, pixels come back as they are. A process is started afresh: it is no copy of this one, whose
threads and GPU it must not have, and does not run the script that called. It ends when this process does, however that
ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unem._words import counted
from unem.errors import InputError
from unem.vision.decoding import decode
from unem.vision.decoding.preparation import Source, prepare
from unem.vision.decoding.preprocessing import Preprocessing

__all__ = ["LARGE_IMAGE", "DecodingProcesses"]

MODULE = "unem.vision.decoding.worker"
LARGE_IMAGE = "large"  # a process asks for its turn with it, and gets it back


class DecodingProcesses:
    """Some processes, for as many threads of this one.

    Args:
        preprocessing: what images go through; one of a class of its own could not be made there again.
        workers: how many processes.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> file = Path(tempfile.mkdtemp()) / "red.png"
        >>> Image.new("RGB", (40, 30), "red").save(file)
        >>> pixels = np.zeros((2, 8, 8, 3), np.uint8)
        >>> with DecodingProcesses(Preprocessing(8, 8), workers=1) as processes:
        ...     processes.prepare([file, Path("nowhere.jpg")], pixels)
        [None, 'does not exist']
        >>> pixels[:, 4, 4].tolist()
        [[255, 0, 0], [0, 0, 0]]
    """

    def __init__(self, preprocessing: Preprocessing, workers: int) -> None:
        if type(preprocessing) is not Preprocessing:
            kind = type(preprocessing).__name__
            raise InputError(f"decoding: a preprocessing of class {kind} works in threads only, got 'processes'")
        self.preprocessing, self.workers = preprocessing, workers
        self._all: list[_Process] = []
        self._idle: SimpleQueue[_Process] = SimpleQueue()

    def __enter__(self) -> Self:
        try:
            for _ in range(self.workers):
                self._all.append(_Process(self.preprocessing))
                self._idle.put(self._all[-1])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            process.kill()
        for process in self._all:
            process.close()

    def prepare(self, sources: Sequence[Source], pixels: NDArray[np.uint8]) -> list[str | None]:
        """As the function of that name: decode into ``pixels``; what was wrong with each image, or None."""
        files = [source.absolute() for source in sources if isinstance(source, Path)]
        if len(files) < len(sources):
            return prepare(sources, pixels, self.preprocessing)  # contents are here: sent around, they cost more
        process = self._idle.get()
        try:
            return process.prepare(files, pixels)
        finally:
            self._idle.put(process)


class _Process:
    """One of them."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        # As this process finds its modules; and one thread is all that a process needs.
        environment = {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | environment,
            start_new_session=True,  # Ctrl-C is for this process alone, which then ends the others
        )
        with suppress(BrokenPipeError):  # it died; who asks it for images will hear of that
            self._say({"preprocessing": preprocessing.to_dict(), "pillow": _pillow_settings()})

    def prepare(self, files: Sequence[Path], pixels: NDArray[np.uint8]) -> list[str | None]:
        try:
            self._say([os.fspath(file) for file in files])
            while (answer := self._answer()) == LARGE_IMAGE:
                with decode.one_large:
                    self._say(LARGE_IMAGE)
                    self._answer()
            if self._output.readinto(pixels.data.cast("B")) < pixels.nbytes:
                raise EOFError
        except (OSError, EOFError, ValueError):  # ValueError: a line that was cut short
            raise InputError(self._end(files)) from None
        return list(answer)

    def _say(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def _answer(self) -> Any:
        return json.loads(self._output.readline())

    @property
    def _output(self) -> Any:
        return self.process.stdout

    def _end(self, files: Sequence[Path]) -> str:
        self.process.kill()
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return (
            f"workers: a process that decodes images died ({how}) while it read {counted(len(files), 'image')} from "
            f"{os.fspath(files[0])!r} on, perhaps for want of memory, of which fewer workers need less"
        )

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        with suppress(OSError), self.process:  # OSError: something was still to be said to it
            pass


def _pillow_settings() -> list[Any]:
    """What a script may have changed, and what decides which images are read."""
    from PIL import Image, ImageFile

    return [Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES]
