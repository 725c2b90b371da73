"""Writing files so that a reader never meets half of one."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from unem.errors import InputError

__all__ = [
    "cache_folder",
    "check_exists",
    "check_writable",
    "guarded",
    "plain",
    "read_json",
    "sort_header",
    "to_json",
    "unguarded",
    "write_aside",
    "write_json",
]


@contextmanager
def write_aside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it into place on success, remove it on any failure.

    Example:
        >>> import tempfile, pathlib
        >>> target = pathlib.Path(tempfile.mkdtemp()) / "a.txt"
        >>> with write_aside(target) as aside:
        ...     _ = aside.write_text("whole")
        >>> target.read_text()
        'whole'
    """
    check_writable(path)
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        os.chmod(aside, 0o666 & ~_umask())  # mkstemp makes private files; give it the usual permissions
        with open(aside, "rb") as written:
            os.fsync(written.fileno())
        os.replace(aside, target)
    except (OSError, SafetensorError) as error:  # the latter is what a full disk comes to in safetensors
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot write {target}: {reason}; nothing was left behind") from error
    finally:
        aside.unlink(missing_ok=True)


def check_exists(path: str | os.PathLike[str], name: str, *, or_folder: bool = False) -> None:
    """Refuse a path where there is no file, in the words of the argument ``name``.

    Args:
        or_folder: a folder will do as well.
    """
    target = Path(path)
    if not target.exists():
        raise InputError(f"{name}: {os.fspath(path)!r} does not exist")
    if target.is_dir() and not or_folder:
        raise InputError(f"{name}: {os.fspath(path)!r} is a folder, not a file")


def cache_folder() -> Path | None:
    """Where what can be computed again is kept: ``$XDG_CACHE_HOME/unem``, or ``~/.cache/unem``; perhaps not there.

    None for a user who has no home, as in some containers.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "unem"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        return None


def check_writable(path: str | os.PathLike[str]) -> None:
    """Fail now rather than after the work whose result is to be written there."""
    target = Path(path)
    if target.is_dir():
        raise InputError(f"cannot write {target}: it is a folder, a file name was expected")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write ``value`` as readable JSON, whole or not at all."""
    with write_aside(path) as aside:
        aside.write_text(to_json(value), encoding="utf-8")


def to_json(value: Any) -> str:
    """Readable JSON; numbers that JSON does not have (NaN, infinities) become null.

    Example:
        >>> print(to_json({"interval": float("nan")}), end="")
        {
          "interval": null
        }
    """
    text = json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # file names need not be UTF-8; JSON has an escape


def plain(value: Any) -> Any:
    """Values as JSON has them: lists for tuples, null for numbers that are not finite."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """Read JSON, or say which file is not ``what`` it should be."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{what} {os.fspath(path)!r} does not exist") from None
    except OSError as error:
        raise InputError(f"cannot read {what} {os.fspath(path)!r}: {error.strerror or error}") from error
    except RecursionError:
        raise InputError(f"{os.fspath(path)!r} is not {what}: its brackets are nested too deeply") from None
    except ValueError as error:  # no UTF-8, no JSON, or a number of thousands of digits
        raise InputError(f"{os.fspath(path)!r} is not {what}: it is not JSON ({error})") from error


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""A spreadsheet computes what begins with one of these, some also where blanks come before; the last are full-width."""


def guarded(cell: str) -> str:
    """Text for a table, with an apostrophe in front where a spreadsheet would take it for a formula.

    Example:
        >>> guarded("=1+1.png"), guarded("1.png"), unguarded(guarded("=1+1.png"))
        ("'=1+1.png", '1.png', '=1+1.png')
    """
    return f"'{cell}" if _is_formula(cell) else cell


def unguarded(cell: str) -> str:
    """The inverse of :func:`guarded`."""
    return cell[1:] if cell[:1] == "'" and _is_formula(cell[1:]) else cell


def _is_formula(cell: str) -> bool:
    return cell.startswith(FORMULA) or cell.lstrip().startswith(FORMULA)


def sort_header(path: str | os.PathLike[str]) -> None:
    """Put the metadata of a safetensors file in order, so that equal contents are equal bytes: it is written in any
    order.

    Example:
        >>> import tempfile, torch
        >>> from safetensors.torch import save_file
        >>> file = os.path.join(tempfile.mkdtemp(), "a.safetensors")
        >>> save_file({"x": torch.zeros(1)}, file, metadata={"b": "1", "a": "2"})
        >>> sort_header(file)
        >>> Path(file).read_bytes()[8:40]
        b'{"__metadata__":{"a":"2","b":"1"'
    """
    with open(path, "r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
        ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(ordered) <= length:  # the same text in another order; were it longer, the tensors would be overwritten
            file.seek(8)
            file.write(ordered.ljust(length))
