"""What to compute, as data: blocks whose lists are swept, from a TOML file or from the paper's recipes."""

from __future__ import annotations

import fnmatch
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from unem.data import Protocol
from unem.errors import InputError
from unem.experiments.cells import Cell, Preparation, with_tuples
from unem.experiments.images import FeatureFolder, Images, check_tasks, usual_images
from unem.learning import FamilyConfig, TrainingConfig, variant
from unem.methods import MethodInfo, create_for, grid_points, list_methods, method_info

__all__ = ["LeftOut", "Plan", "Spec", "expand", "parse_spec", "read_spec"]

BLOCK_DEFAULTS: Mapping[str, Any] = {
    "shots": 5,
    "effective_classes": 5,
    "queries": 75,
    "balance": "pooled",
    "overlap": False,
    "variants": "adaptive",
    "layers": 10,
    "recipe": "default",
    "learning": {},
    "learned_at": {},
    "learned_on": "",
    "training_seeds": 0,
    "tune": 0,
    "settings": {},
    "tasks": 1000,
    "seed": 7,
    "test": {},
    "validation": {},
}
PROTOCOL = ("shots", "effective_classes", "queries", "balance", "overlap")
SWEPT = (*PROTOCOL, "variants", "layers", "recipe", "learned_on", "training_seeds", "seed")
KINDS: Mapping[str, tuple[type, ...]] = {  # of the values of a list, where Protocol and others do not check them
    **dict.fromkeys(("shots", "queries", "layers", "training_seeds", "seed"), (int,)),
    **dict.fromkeys(("balance", "variants", "recipe", "learned_on"), (str,)),
    "effective_classes": (int, str),
    "overlap": (bool,),
}
IMAGES = ("support_split", "query_split", "query_classes")
FROM_PROTOCOL = ("shots", "query_classes")  # settings of a family that follow from the protocol
RECIPES = {"default": TrainingConfig.default, "published": TrainingConfig.published}


@dataclass(frozen=True)
class LeftOut:
    """A combination that cannot be computed, and why."""

    features: str
    method: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """Cells to compute, each once, and what was left out."""

    cells: tuple[Cell, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def __add__(self, other: Plan) -> Plan:
        cells = {cell.name: cell for cell in (*self.cells, *other.cells)}
        return Plan(tuple(cells.values()), tuple(dict.fromkeys((*self.left_out, *other.left_out))))

    def to_dict(self, **more: Any) -> dict[str, Any]:
        """Plain values for the results store."""
        left_out = [asdict(x) for x in self.left_out]
        return {**more, "cells": [cell.name for cell in self.cells], "left_out": left_out}


@dataclass(frozen=True)
class Spec:
    """A sweep: blocks of combinations, and the folder its feature files are in."""

    name: str
    blocks: tuple[Mapping[str, Any], ...]
    features: Path | None = None
    title: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)


def read_spec(path: str | os.PathLike[str]) -> Spec:
    """A sweep from a TOML file.

    ::

        features_dir = "features"        # beside this file
        tasks = 1000                     # what all blocks share

        [[cells]]
        features = ["resnet18__*"]       # names or globs of files
        methods = ["paddle", "unem-gaussian"]
        shots = [1, 5, 20]               # a list is swept
        variants = ["adaptive", "fixed"] # of learned methods
        training_seeds = [0, 1, 2]

        [[cells]]
        features = "clip-vit-b32__*"
        methods = "em-dirichlet"
        settings = {class_balance = [1, 3, 10, 30]}
    """
    file = Path(path)
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"spec: {os.fspath(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"spec: {os.fspath(path)!r} is not a readable TOML file ({error})") from None
    return parse_spec(values, file.stem, file.parent)


def parse_spec(values: Mapping[str, Any], name: str = "sweep", beside: Path = Path()) -> Spec:
    """A sweep from the values of a TOML file; says which of them cannot be used."""
    blocks = values.get("cells")
    if not isinstance(blocks, list) or not blocks or not all(isinstance(b, dict) for b in blocks):
        raise InputError("spec: expected at least one block [[cells]] with features and methods")
    folder = values.get("features_dir")
    if folder is not None and not isinstance(folder, str):
        raise InputError(f"features_dir: expected the name of a folder, got {folder!r}")
    shared = {k: v for k, v in values.items() if k not in ("cells", "features_dir", "title")}
    for block in (shared, *blocks):
        _check_block(block)
    return Spec(name, tuple(blocks), None if folder is None else beside / folder, str(values.get("title", "")), shared)


def _check_block(block: Mapping[str, Any]) -> None:
    unknown = sorted(block.keys() - BLOCK_DEFAULTS.keys() - {"features", "methods"})
    if unknown:
        known = ", ".join(("features", "methods", *BLOCK_DEFAULTS))
        raise InputError(f"spec: {unknown[0]!r} is not known in a block; expected some of {known}")
    for name in ("learning", "learned_at", "settings", "test", "validation"):
        if not isinstance(block.get(name, {}), dict):
            raise InputError(f"{name}: expected names and values, got {block[name]!r}")
    for name, parts in (("learned_at", PROTOCOL), ("test", IMAGES), ("validation", IMAGES)):
        if wrong := sorted(block.get(name, {}).keys() - set(parts)):
            raise InputError(f"{name}: {wrong[0]!r} is not known; expected some of {', '.join(parts)}")
    for name in ("features", "methods", *SWEPT):
        if name in block and _as_list(block[name]) == []:
            raise InputError(f"{name}: got an empty list, at least one value is needed")
    for name, least in (("tasks", 1), ("tune", 0)):
        value = block.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    for name, kinds in KINDS.items():
        for value in _as_list(block.get(name, BLOCK_DEFAULTS[name])):
            negative = kinds == (int,) and isinstance(value, int) and value < 0
            if not isinstance(value, kinds) or isinstance(value, bool) != (kinds == (bool,)) or negative:
                expected = " or ".join({int: "a whole number", str: "a text", bool: "true or false"}[k] for k in kinds)
                raise InputError(f"{name}: expected {expected}, or a list of them, got {value!r}")
    for name in ("test", "validation"):
        for key, value in block.get(name, {}).items():
            if not isinstance(value, str):
                raise InputError(f"{name}: {key}: expected a text, got {value!r}")


def expand(spec: Spec, folder: FeatureFolder, overrides: Mapping[str, Any] | None = None) -> Plan:
    """All cells of a sweep on the files of a folder.

    Args:
        overrides: values that replace those of every block (``tasks``, ``training_seeds`` …).
    """
    plan = Plan()
    for block in spec.blocks:
        plan += _expand_block({**BLOCK_DEFAULTS, **spec.defaults, **block, **(overrides or {})}, folder)
    return plan


def _expand_block(block: Mapping[str, Any], folder: FeatureFolder) -> Plan:
    for name in ("features", "methods"):
        if name not in block:
            raise InputError(f"{name}: a block needs some")
    cells: list[Cell] = []
    left_out: list[LeftOut] = []
    checked = lru_cache(None)(lambda images, protocol, name: _problem(folder, images, protocol, name))
    for features in _named(block["features"], folder.names, "features"):
        validation, test = _images(folder, features, block)
        for info in _methods(block["methods"]):
            for cell in _cells(block, info, test, validation, folder):
                problems = [checked(job.images, job.protocol, job.method) for job in (cell, cell.needs) if job]
                problem = next((p for p in (*problems, _unusable(cell, folder)) if p), None)
                if problem:
                    left_out.append(LeftOut(features, info.name, problem))
                else:
                    cells.append(cell)
    return Plan() + Plan(tuple(cells), tuple(left_out))


def _cells(
    block: Mapping[str, Any], info: MethodInfo, test: Images, validation: Images, folder: FeatureFolder
) -> Iterator[Cell]:
    names = [n for n in SWEPT if info.learned or n in (*PROTOCOL, "seed")]
    for values in product(*(_as_list(block[n]) for n in names)):
        chosen = dict(zip(names, values, strict=True))
        protocol = Protocol(**{n: chosen[n] for n in PROTOCOL})
        learned_on = chosen.get("learned_on")
        learned_images = _images(folder, learned_on, block)[0] if learned_on else validation
        preparation = _preparation(
            block, info, protocol, learned_images, chosen, folder.load(test.features).num_classes
        )
        for settings in _settings(block["settings"], info):
            cell = Cell(info.name, test, protocol, block["tasks"], chosen["seed"], settings, preparation)
            yield cell


def _preparation(
    block: Mapping[str, Any],
    info: MethodInfo,
    protocol: Protocol,
    images: Images,
    chosen: Mapping[str, Any],
    classes: int,
) -> Preparation | None:
    where = replace(protocol, **block["learned_at"])
    if info.recipe is not None:
        learning = _learning(block, info, chosen)
        if info.recipe.kind == "family":  # learned for any number of effective classes and queries
            where = Protocol(shots=where.shots)
        return Preparation(info.name, images, where, chosen["training_seeds"], learning=learning)
    if not block["tune"] or len(list(grid_points(info.name))) == 1 or block["settings"]:
        return None
    seed = _as_list(block["training_seeds"])[0]
    return Preparation(info.name, images, where, seed, tasks=block["tune"], classes=classes)


def _learning(block: Mapping[str, Any], info: MethodInfo, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of the training, so that a default that changes makes another cell."""
    changes = {"layers": chosen["layers"], **with_tuples(block["learning"])}
    try:
        config = asdict(_config(info, chosen, changes))
    except (TypeError, ValueError) as error:
        raise InputError(f"learning: {error}") from None
    return {name: value for name, value in config.items() if name in changes or name not in FROM_PROTOCOL}


def _config(info: MethodInfo, chosen: Mapping[str, Any], changes: Mapping[str, Any]) -> TrainingConfig | FamilyConfig:
    assert info.recipe is not None
    assert info.law is not None
    if info.recipe.kind == "family":
        return info.recipe.config(info.law, **changes)
    if chosen["recipe"] not in RECIPES:
        raise InputError(f"recipe: expected {' or '.join(RECIPES)}, got {chosen['recipe']!r}")
    return RECIPES[chosen["recipe"]](info.law, **{**variant(chosen["variants"], info.law), **changes})


def _settings(settings: Mapping[str, Any], info: MethodInfo) -> Iterator[dict[str, Any]]:
    unknown = sorted(settings.keys() - info.options.keys())
    if unknown:
        known = ", ".join(info.options) or "none"
        raise InputError(f"settings: {info.name} has no setting {unknown[0]!r}; its settings are: {known}")
    for values in product(*(_as_list(v) for v in settings.values())):
        yield dict(zip(settings, values, strict=True))


def _images(folder: FeatureFolder, features: str, block: Mapping[str, Any]) -> tuple[Images, Images]:
    validation, test = usual_images(folder.load(features), folder.digest(features))
    return replace(validation, **block["validation"]), replace(test, **block["test"])


def _problem(folder: FeatureFolder, images: Images, protocol: Protocol, method: str) -> str | None:
    try:
        check_tasks(folder.load(images.features), images, protocol, method)
    except InputError as error:
        return str(error)
    return None


def _unusable(cell: Cell, folder: FeatureFolder) -> str | None:
    """Methods that cannot be made here, such as those that need a text encoder."""
    if method_info(cell.method).learned:
        return None
    try:
        create_for(cell.method, cell.protocol, folder.load(cell.images.features).num_classes, **cell.settings)
    except InputError as error:
        return str(error)
    return None


def _methods(words: Any) -> list[MethodInfo]:
    chosen: dict[str, MethodInfo] = {}
    texts = _strings(words, "methods")
    unwanted = [w for w in texts if w.startswith("!")]
    for word in (w for w in texts if w not in unwanted):
        matching = list_methods(",".join([word, *unwanted])) if set("*?[") & set(word) else [method_info(word)]
        if not matching:
            raise InputError(f"methods: none matches {word!r}")
        chosen |= {m.name: m for m in matching if not any(fnmatch.fnmatch(m.name, w[1:]) for w in unwanted)}
    return list(chosen.values())


def _named(words: Any, names: Sequence[str], what: str) -> list[str]:
    chosen: dict[str, None] = {}
    for word in _strings(words, what):
        matching = [n for n in names if fnmatch.fnmatch(n, word)]
        if not matching:
            raise InputError(f"{what}: {word!r} is not among the files found ({', '.join(names) or 'there are none'})")
        chosen |= dict.fromkeys(matching)
    return list(chosen)


def _strings(value: Any, what: str) -> list[str]:
    values = _as_list(value)
    if not values or not all(isinstance(v, str) and v for v in values):
        raise InputError(f"{what}: expected a name or a list of names, got {value!r}")
    return values


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
