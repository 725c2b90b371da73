"""The Dirichlet solver of ``dirichlet.c``, compiled on the user's machine the first time it is wanted.

One small file without dependencies: any C compiler makes it in well under a second, and the result is kept in the
user's
cache folder. Where there is no compiler, or the result does not pass its check, :mod:`unem.core.numerics.newton` does
the same in torch, several times slower (see :mod:`unem.core.numerics.backends` for how to choose it).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import torch
from torch import Tensor

from unem._io import cache_folder
from unem.core.numerics import newton
from unem.errors import warn_once

__all__ = ["gradient", "is_available", "solve"]

SOURCE = Path(__file__).with_name("dirichlet.c")
FLAGS = ("-O3", "-std=c99", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
# Tried in turn: not every compiler knows its machine, or has OpenMP (one thread is used without it).
VARIANTS = (("-march=native", "-fopenmp"), ("-fopenmp",), ())
TIME_LIMIT = 20  # seconds; it takes 0.3
STEPS = newton.MAX_STEPS[torch.float32]


def is_available() -> bool:
    """Whether the compiled solver is used on this machine; compiles it if need be."""
    return _library() is not None


def solve(statistic: newton.Statistic, previous: newton.Fit | None, fit: newton.Fit) -> None:
    """See :func:`unem.core.numerics.newton.solve`."""
    library = _library()
    assert library is not None
    product, sums, mass = statistic
    inputs = [None if t is None else t.contiguous() for t in (product, sums, mass, *(previous or (None, None, None)))]
    rows, dim = product.numel() // product.shape[-1], product.shape[-1]
    pointers = [None if t is None else t.data_ptr() for t in (*inputs, *fit)]
    capped = library.unem_dirichlet_solve(*pointers, rows, dim, STEPS, torch.get_num_threads())
    if capped < 0:
        raise MemoryError("no memory for the rows of the Dirichlet solver")
    if capped:
        warn_once(newton.CAPPED)


def gradient(mean_log: Tensor, alpha: Tensor, grad_alpha: Tensor, grad_norm: Tensor) -> Tensor:
    """The implicit gradient of (α, −ln B(α)) with respect to ȳ."""
    library = _library()
    assert library is not None
    tensors = [t.contiguous() for t in (mean_log, alpha, grad_alpha, grad_norm)]
    out, dim = torch.empty_like(tensors[2]), mean_log.shape[-1]
    pointers = [t.data_ptr() for t in (*tensors, out)]
    if library.unem_dirichlet_gradient(*pointers, mean_log.numel() // dim, dim, torch.get_num_threads()) < 0:
        raise MemoryError("no memory for the rows of the Dirichlet solver")
    return out


_lock = threading.Lock()


def _library() -> ctypes.CDLL | None:
    with _lock:  # several threads may want it first
        return _loaded()


@functools.cache
def _loaded() -> ctypes.CDLL | None:
    folder = _cache_folder()
    try:
        with folder if isinstance(folder, tempfile.TemporaryDirectory) else nullcontext(os.fspath(folder)) as name:
            return _first_that_works(Path(name))
    except OSError:
        return None  # the plain solver serves


def _first_that_works(folder: Path) -> ctypes.CDLL | None:
    for compiler in _compilers():
        with suppress(OSError, subprocess.SubprocessError, AttributeError):
            path = _compiled(compiler, folder)
            library = None if path is None else _load(path)
            if library is not None:
                return library
    return None


def _load(path: Path) -> ctypes.CDLL | None:
    library = ctypes.CDLL(os.fspath(path))
    pointer, long, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    library.unem_dirichlet_solve.argtypes = [pointer] * 9 + [long, long, integer, integer]
    library.unem_dirichlet_gradient.argtypes = [pointer] * 5 + [long, long, integer]
    library.unem_dirichlet_solve.restype = library.unem_dirichlet_gradient.restype = long
    return library if _is_right(library) else None


def _is_right(library: ctypes.CDLL) -> bool:
    """A few known rows: a compiler that breaks the arithmetic must not go unnoticed."""
    known = torch.tensor([[0.02, 0.5, 3.0, 40.0, 0.3], [2.0, 2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
    mean_log = (torch.digamma(known) - torch.digamma(known.sum(-1, keepdim=True))).float()
    copy, alpha, norm = torch.empty_like(mean_log), torch.zeros_like(mean_log), torch.zeros(2)
    outputs = [t.data_ptr() for t in (copy, alpha, norm)]
    library.unem_dirichlet_solve(mean_log.data_ptr(), *[None] * 5, *outputs, 2, 5, STEPS, 1)
    expected = torch.lgamma(known.sum(-1)) - torch.lgamma(known).sum(-1)
    return torch.allclose(alpha.double(), known, rtol=1e-3) and torch.allclose(norm.double(), expected, atol=1e-2)


def _compiled(compiler: tuple[str, ...], folder: Path) -> Path | None:
    """The library's file, made if it is not there whole: its name ends in the digest of its content, since to load one
    that was cut short ends the process."""
    what = repr((FLAGS, VARIANTS, compiler, _processor())).encode()
    stem = f"dirichlet-{hashlib.sha256(SOURCE.read_bytes() + what).hexdigest()[:16]}"
    for path in sorted(folder.glob(f"{stem}-*.so")):
        if _is_ours(path) and path.stem == f"{stem}-{_digest(path)}":
            return path
    handle, name = tempfile.mkstemp(dir=folder, prefix=".dirichlet-")
    os.close(handle)
    aside = Path(name)
    try:
        if not _compile(compiler, aside):
            return None
        aside.chmod(0o700)
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        return aside.replace(folder / f"{stem}-{_digest(aside)}.so")
    finally:
        aside.unlink(missing_ok=True)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _compilers() -> list[tuple[str, ...]]:
    """The configured compiler, with its arguments, then the usual names."""
    configured = [shlex.split(c) for c in (os.environ.get("CC"), sysconfig.get_config_var("CC")) if c]
    commands = [*configured, ["cc"], ["gcc"], ["clang"]]
    found = [(path, *arguments) for name, *arguments in filter(None, commands) if (path := shutil.which(name))]
    return list(dict.fromkeys(found))


def _compile(compiler: tuple[str, ...], target: Path) -> bool:
    for variant in VARIANTS:
        command = [*compiler, *FLAGS, *variant, os.fspath(SOURCE), "-o", os.fspath(target), "-lm"]
        done = subprocess.run(command, capture_output=True, timeout=TIME_LIMIT, check=False)
        if done.returncode == 0:
            return True
    return False


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
