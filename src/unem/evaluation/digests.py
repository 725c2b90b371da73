"""What names a computation: digests of the code and of the features, and a cache of what both determine."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unem._io import plain, read_json, write_json
from unem._version import __version__
from unem.data import FeatureSet
from unem.methods import method_info

__all__ = ["cached", "code_digest", "code_version", "content_digest", "program", "value_digest"]

COMPUTING = ("core", "data", "learning", "methods", "evaluation")  # the folders that decide a result
COMPILED = (".c", ".cu")
KERNELS = "triton_"  # Python that Triton compiles
PACKAGE = Path(__file__).parents[1]


def code_version(method: str | None = None) -> str:
    """The version and a digest of the program that decides results: no cached result outlives the code behind it.

    Args:
        method: name of a registered method; the modules of one that is not of this library count too.
    """
    return f"{__version__}+{code_digest(_modules_of(method) if method else ())}"


@lru_cache
def code_digest(others: tuple[Path, ...] = ()) -> str:
    """Names the program in the folders core, data, learning, methods and evaluation, and in other files.

    Comments, docstrings and the layout of Python code do not count; sources that another compiler reads count as they
    are.
    """
    content = hashlib.sha256()
    for path in (*_sources(PACKAGE), *others):
        name = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
        text = path.read_text(encoding="utf-8")
        content.update(name.encode() + b"\0" + (text if _is_compiled(path) else program(text)).encode())
    return content.hexdigest()[:10]


def _sources(root: Path) -> Iterator[Path]:
    for folder in COMPUTING:
        files = (p for p in (root / folder).rglob("*") if p.suffix in (".py", *COMPILED))
        yield from sorted(files, key=lambda p: p.relative_to(root).as_posix())


def _is_compiled(path: Path) -> bool:
    return path.suffix in COMPILED or path.name.startswith(KERNELS)


def program(source: str) -> str:
    """What a Python source does: its syntax tree without docstrings, as one version of Python writes it.

    Example:
        >>> program('def f(x):\\n    "The square."\\n    return x * x  # fast') == program("def f(x): return x*x")
        True
        >>> program("def f(x): return x") == program("def f(x): return -x")
        False
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):  # docstrings, those of attributes too: a text that stands alone does nothing
            node.body = [s for s in body if not _is_text(s)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _modules_of(method: str) -> tuple[Path, ...]:
    """The files of a user's own method, of its law and of what they inherit from."""
    info = method_info(method)
    classes = {*inspect.getmro(info.method), *inspect.getmro(type(info.law))}
    own = (c for c in classes if c.__module__.split(".")[0] not in ("unem", *sys.stdlib_module_names))
    return tuple(sorted({Path(file) for c in own if (file := _file_of(c)) is not None}))


def _file_of(kind: type) -> str | None:
    try:
        return inspect.getsourcefile(kind)
    except (TypeError, OSError):  # defined in a session that has no file
        return None


def content_digest(features: FeatureSet) -> str:
    """Names everything in a feature set that can decide a result: also splits, numbers of classes, and the base mean.

    Example:
        >>> import torch
        >>> one, two = (FeatureSet(torch.eye(2), [0, 1], split=["val", s]) for s in ("val", "test"))
        >>> content_digest(one) == content_digest(two)
        False
    """
    content = hashlib.sha256(features.digest.encode())
    content.update(repr((features.kind, features.class_ids, features.class_names)).encode())
    for value in (features.split_names, features.base_mean):
        content.update(b"-" if value is None else np.ascontiguousarray(value).tobytes())
    return content.hexdigest()[:16]


def value_digest(value: Mapping[str, Any]) -> str:
    """Names plain values, the same on every machine.

    Example:
        >>> value_digest({"a": 1, "b": 2.0}) == value_digest({"b": 2.0, "a": 1})
        True
    """
    text = json.dumps(plain(dict(value)), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def cached(
    folder: str | os.PathLike[str] | None,
    determined_by: Mapping[str, Any],
    compute: Callable[[], Mapping[str, Any]],
) -> tuple[dict[str, Any], bool]:
    """What some values and the code determine, from a folder that keeps it; and whether it was computed now.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> [cached(folder, {"method": {"name": "paddle"}}, lambda: {"accuracy": 37.2}) for _ in range(2)]
        [({'accuracy': 37.2}, True), ({'accuracy': 37.2}, False)]
    """
    if folder is None:
        return dict(compute()), True
    key = {**determined_by, "code": code_version(determined_by["method"]["name"])}
    place = Path(folder) / f"{value_digest(key)}.json"
    if place.exists():
        return dict(read_json(place, "cached result")["result"]), False
    result = dict(compute())
    write_json(place, {"key": key, "result": result})
    return result, True
