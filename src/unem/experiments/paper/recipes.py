"""The paper's tables and figures as recipes, planned on the feature files that are there."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from typing import Any

from unem.errors import InputError
from unem.experiments.images import FeatureFolder, usual_images
from unem.experiments.spec import LeftOut, Plan, Spec, expand
from unem.methods import list_methods

__all__ = [
    "Recipe",
    "RecipePlan",
    "check_methods",
    "citation",
    "file_names",
    "list_recipes",
    "plan_recipe",
    "printed",
    "printed_numbers",
    "recipe",
]


@dataclass(frozen=True)
class Recipe:
    """A table or figure of the paper.

    Attributes:
        printed: the paper's tables that hold its numbers; none for figures.
        claims: what the paper says of it, by the names in :mod:`unem.experiments.paper.claims`.
        blocks: cells as in a sweep, with ``stand_ins``: changes under which other files take the place of the paper's.
    """

    name: str
    title: str
    printed: tuple[str, ...]
    claims: tuple[str, ...]
    blocks: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class RecipePlan:
    """What can be computed of a recipe with the files at hand.

    Attributes:
        stand_ins: files that are not the paper's, with the reason why.
        missing: files of the paper that are not there, with how to get them.
    """

    recipe: Recipe
    plan: Plan
    stand_ins: Mapping[str, str]
    missing: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the results store."""
        more = {"recipe": self.recipe.name, "title": self.recipe.title, "stand_ins": dict(self.stand_ins)}
        return self.plan.to_dict(**more, missing=dict(self.missing))


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(files("unem.experiments.paper").joinpath("recipes.toml").read_text(encoding="utf-8"))


@cache
def printed_numbers() -> dict[str, Any]:
    """Every number that the paper prints, table by table."""
    value: dict[str, Any] = json.loads(
        files("unem.experiments.paper").joinpath("printed.json").read_text(encoding="utf-8")
    )
    return value


def citation() -> str:
    return str(printed_numbers()["citation"])


def list_recipes() -> list[Recipe]:
    """All recipes, in the paper's order.

    Example:
        >>> [r.name for r in list_recipes()][:3]
        ['table1', 'table2', 'table3']
    """
    return [
        Recipe(name, r["title"], tuple(r.get("printed", ())), tuple(r.get("claims", ())), tuple(r["cells"]))
        for name, r in _data()["recipe"].items()
    ]


def recipe(name: str) -> Recipe:
    """A recipe by its name."""
    known = {r.name: r for r in list_recipes()}
    if name not in known:
        raise InputError(f"recipe: none is called {name!r}; there are {', '.join(known)}, and 'all'")
    return known[name]


def printed(recipe: Recipe) -> Iterator[dict[str, Any]]:
    """The paper's numbers for a recipe, with this library's names of methods and variants.

    Example:
        >>> next(printed(globals()["recipe"]("layers")))["value"]
        65.6
    """
    names = _data()["names"]
    for table in printed_numbers()["tables"]:
        if table["id"] not in recipe.printed:
            continue
        for row in table["rows"]:
            variant = {"temperature": "adaptive"}.get(row.get("variant", ""), row.get("variant", "adaptive"))
            layers = row.get("layers", 10)
            yield {
                "features": f"{row['backbone']}__{row['dataset']}",
                "method": names.get(row["method"], row["method"]),
                "shots": row["shots"],
                "variant": variant if layers == 10 else f"{variant}, L = {layers}",
                "learned_on": f"{row['backbone']}__{row['trained_on']}" if "trained_on" in row else None,
                "value": row.get("value", row.get("accuracy")),
                "tasks": table["tasks"],
                "more": {k: row[k] for k in ("params", "train_time_s", "inference_time_per_task_s") if k in row},
            }


def plan_recipe(
    recipe: Recipe,
    folder: FeatureFolder,
    overrides: Mapping[str, Any] | None = None,
    *,
    methods: str | None = None,
    stand_in: str | None = None,
) -> RecipePlan:
    """What can be computed of a recipe with the files of a folder.

    A file of the paper's name that lacks the splits ``val`` and ``test`` stands in for the paper's too: its tasks are
    others.

    Args:
        overrides: values that replace those of every block, such as ``tasks``.
        methods: only those of the recipe's methods that match globs; ``!GLOB`` leaves out.
        stand_in: names or globs (comma separated) of files to stand in, instead of the recipe's.
    """
    plan, stand_ins, missing = Plan(), dict[str, str](), dict[str, str]()
    for block in recipe.blocks:
        wanted = file_names(block["features"])
        there = [n for n in wanted if n in folder.names]
        missing |= {n: _how(n) for n in wanted if n not in there}
        others = {n: why for n in there if (why := _other_tasks(folder, n))}
        stand_ins |= others
        changes = dict(block.get("stand_ins", {}))
        candidates = stand_in.split(",") if stand_in else file_names(changes.pop("features", []))
        substitutes = [n for n in _present(candidates, folder) if n not in wanted]
        stand_ins |= dict.fromkeys(substitutes, "not a dataset of the paper, or not all of it")
        for features, changed in ((there, {}), (substitutes, changes)):
            plan += _expanded(recipe.name, block, features, changed, folder, overrides, methods)
    return RecipePlan(recipe, plan, stand_ins, missing)


def check_methods(methods: str | None, recipes: Sequence[Recipe]) -> None:
    """Every pattern must match a method of these recipes; one that leaves out, any method at all.

    Example:
        >>> check_methods("paddle,!alpha-*", [recipe("table1")])
    """
    if methods is None:
        return
    own = sorted({m for r in recipes for block in r.blocks for m in _all_methods(block)})
    known = {m.name for m in list_methods()}
    words = [w.strip() for w in methods.split(",")]
    where = recipes[0].name if len(recipes) == 1 else "the recipes"
    there = f"{'it has' if len(recipes) == 1 else 'they have'} {', '.join(own)}"
    lost = [w for w in words if not any(fnmatch(n, w.removeprefix("!")) for n in (known if w[:1] == "!" else own))]
    if lost:
        raise InputError(f"methods: no method of {where} matches {' or '.join(map(repr, lost))}; {there}")
    if not _matching(own, methods):
        raise InputError(f"methods: {methods!r} leaves no method of {where}; {there}")


def _all_methods(block: Mapping[str, Any]) -> list[str]:
    return _as_list(block["methods"]) + _as_list(block.get("stand_ins", {}).get("methods", []))


def _expanded(
    name: str,
    block: Mapping[str, Any],
    features: list[str],
    changes: Mapping[str, Any],
    folder: FeatureFolder,
    overrides: Mapping[str, Any] | None,
    methods: str | None,
) -> Plan:
    full = {**{k: v for k, v in block.items() if k != "stand_ins"}, **changes, "features": features}
    full["methods"] = _matching(full["methods"], methods)
    lacking = [n for n in _as_list(full.get("learned_on", "")) if n and n not in folder.names]
    if not features or not full["methods"]:
        return Plan()
    if lacking:
        left = [
            LeftOut(f, m, f"{lacking[0]!r}, which it is learned on, is not there")
            for f in features
            for m in full["methods"]
        ]
        return Plan(left_out=tuple(left))
    return expand(Spec(name, (full,)), folder, overrides)


def _matching(methods: Any, pattern: str | None) -> list[str]:
    names = _as_list(methods)
    if pattern is None:
        return names
    # "!GLOB" alone means all but those.
    words = pattern if any(not w.strip().startswith("!") for w in pattern.split(",")) else f"*,{pattern}"
    allowed = {m.name for m in list_methods(words)}
    return [n for n in names if n in allowed]


def _other_tasks(folder: FeatureFolder, name: str) -> str:
    """Why a file of the paper's name does not give the paper's tasks; nothing when it does."""
    _, test = usual_images(folder.load(name), folder.digest(name))
    return (
        "" if test.query_classes is None else "it has no splits 'val' and 'test': tested on queries of the odd classes"
    )


def file_names(names: Any) -> list[str]:
    """Names of files, with "@LIST" for a list of them."""
    files: list[str] = []
    for name in _as_list(names):
        files += _data()["files"][name[1:]] if name.startswith("@") else [name]
    return files


def _present(candidates: list[str], folder: FeatureFolder) -> list[str]:
    return [n for n in folder.names if any(fnmatch(n, c.strip()) for c in candidates)]


def _how(name: str) -> str:
    backbone, _, dataset = name.partition("__")
    how = _data()["how"]
    return str(how.get(dataset) or how["clip" if backbone.startswith("clip") else "mini-imagenet"])


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
