"""C files that are compiled on the user's machine the first time they are wanted.

Each is one small file without dependencies: any C compiler makes it in a second, and the result is kept in the user's
cache folder. Where there is no compiler, or the result does not pass its check, torch does the same, several times
slower (see :mod:`unem.core.numerics.backends` for how to choose it).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path

from unem._io import cache_folder

__all__ = ["Compiled"]

HERE = Path(__file__).parent
FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
# Tried in turn: not every compiler knows its machine, or has OpenMP (one thread is used without it).
VARIANTS: tuple[tuple[str, ...], ...] = (("-march=native", "-fopenmp"), ("-fopenmp",), ())
TIME_LIMIT = 20  # seconds; it takes 0.3 to 2


class Compiled:
    """The library of a C file beside this one.

    Args:
        name: of the file.
        flags: for the compiler, beside the usual ones.
        first: a variant to try before the usual ones.
        is_right: declares the library's functions, and tries them: a compiler that breaks the arithmetic must not go
            unnoticed.
    """

    def __init__(
        self,
        name: str,
        flags: tuple[str, ...],
        is_right: Callable[[ctypes.CDLL], bool],
        first: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.source, self.flags, self.variants, self.is_right = HERE / name, FLAGS + flags, first + VARIANTS, is_right
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Look for it anew when it is wanted next."""
        self._library: ctypes.CDLL | None = None
        self._known = False

    def library(self) -> ctypes.CDLL | None:
        """The library, or None where it cannot be had; compiles it if need be."""
        with self._lock:  # several threads may want it first
            if not self._known:
                self._library, self._known = self._loaded(), True
            return self._library

    def _loaded(self) -> ctypes.CDLL | None:
        folder = _cache_folder()
        try:
            with folder if isinstance(folder, tempfile.TemporaryDirectory) else nullcontext(os.fspath(folder)) as name:
                return self._first_that_works(Path(name))
        except OSError:
            return None  # torch serves

    def _first_that_works(self, folder: Path) -> ctypes.CDLL | None:
        for compiler in _compilers():
            with suppress(OSError, subprocess.SubprocessError, AttributeError):
                path = self.compiled(compiler, folder)
                library = None if path is None else self.load(path)
                if library is not None:
                    return library
        return None

    def load(self, path: Path) -> ctypes.CDLL | None:
        library = ctypes.CDLL(os.fspath(path))
        return library if self.is_right(library) else None

    def compiled(self, compiler: tuple[str, ...], folder: Path) -> Path | None:
        """The library's file, made if it is not there whole: its name ends in the digest of its content, since to load
        one that was cut short ends the process."""
        what = repr((self.flags, self.variants, compiler, _processor())).encode()
        sources = b"".join(path.read_bytes() for path in (self.source, *sorted(HERE.glob("*.h"))))
        stem = f"{self.source.stem}-{hashlib.sha256(sources + what).hexdigest()[:16]}"
        for path in sorted(folder.glob(f"{stem}-*.so")):
            if _is_ours(path) and path.stem == f"{stem}-{_digest(path)}":
                return path
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{self.source.stem}-")
        os.close(handle)
        aside = Path(name)
        try:
            if not self._compile(compiler, aside):
                return None
            aside.chmod(0o700)
            with open(aside, "rb") as written:
                os.fsync(written.fileno())
            return aside.replace(folder / f"{stem}-{_digest(aside)}.so")
        finally:
            aside.unlink(missing_ok=True)

    def _compile(self, compiler: tuple[str, ...], target: Path) -> bool:
        for variant in self.variants:
            command = [*compiler, *self.flags, *variant, os.fspath(self.source), "-o", os.fspath(target), "-lm"]
            done = subprocess.run(command, capture_output=True, timeout=TIME_LIMIT, check=False)
            if done.returncode == 0:
                return True
        return False


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _compilers() -> list[tuple[str, ...]]:
    """The configured compiler, with its arguments, then the usual names."""
    configured = [shlex.split(c) for c in (os.environ.get("CC"), sysconfig.get_config_var("CC")) if c]
    commands = [*configured, ["cc"], ["gcc"], ["clang"]]
    found = [(path, *arguments) for name, *arguments in filter(None, commands) if (path := shutil.which(name))]
    return list(dict.fromkeys(found))


def _processor() -> str:
    """What ``-march=native`` depends on: a cache folder may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _cache_folder() -> Path | tempfile.TemporaryDirectory[str]:
    """A folder that only this user can write to: what is in it will be executed. Without one, for this process only."""
    base = cache_folder()
    with suppress(OSError):
        if base is not None:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_owned(base):  # features may have made it before, under a umask that lets others in
                base.chmod(base.stat().st_mode & ~0o022)
            if os.access(base, os.W_OK) and _is_ours(base):
                return base
    return tempfile.TemporaryDirectory(prefix="unem-")


def _is_ours(path: Path) -> bool:
    return not hasattr(os, "getuid") or (_is_owned(path) and not path.stat().st_mode & 0o022)


def _is_owned(path: Path) -> bool:
    return hasattr(os, "getuid") and path.stat().st_uid == os.getuid()
