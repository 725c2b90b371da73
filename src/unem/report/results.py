"""A folder of results as one page: summary, claims, tables, plots, environment."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from unem._io import write_aside
from unem.errors import InputError
from unem.experiments import ResultsStore, columns_of
from unem.experiments.paper import (
    Entry,
    Grid,
    Recipe,
    check_claims,
    citation,
    depth_rows,
    entries,
    grid,
    list_recipes,
    mean_accuracy,
)
from unem.report.laws import law_colour, law_of_method
from unem.report.result_plots import Plot, all_plots, confusion_plot
from unem.report.style import COLOURS, themed
from unem.report.templates import template

__all__ = ["render_report", "write_report"]

Row = Mapping[str, Any]


def write_report(
    store: ResultsStore,
    path: str | os.PathLike[str],
    *,
    plots: str | os.PathLike[str] | None = None,
    confusion: str | None = None,
    title: str = "Results",
) -> int:
    """Write the page, and the plots as files where a folder is given; returns how many plots there are.

    Args:
        confusion: name, or its beginning, of the row whose confusion is shown; the best at the fewest shots when left
            out.
    """
    html, made = render_report(store, confusion=confusion, title=title)
    if plots is not None:
        for plot in made:
            plot.save(plots)
    with write_aside(path) as aside:
        aside.write_text(html, encoding="utf-8")
    return len(made)


def render_report(
    store: ResultsStore, *, confusion: str | None = None, title: str = "Results"
) -> tuple[str, list[Plot]]:
    """The page as HTML, and its plots."""
    rows = [row for row in store if row["key"]["kind"] == "cell"]
    if not rows:
        raise InputError(
            f"results: {os.fspath(store.folder)!r} has no rows; `unem sweep` and `unem reproduce` write them"
        )
    sections = _sections(store, rows)
    shown = _chosen(store, rows, confusion)
    plots = [p for p in (*all_plots(rows), confusion_plot(shown)) if p]
    html = template("results.html.j2").render(
        title=title,
        colours=COLOURS,
        rows=len(rows),
        summary=_summary(rows),
        sections=sections,
        verdicts=Counter(check["verdict"] for s in sections for check in s["checks"]),
        checks=[check for s in sections for check in s["checks"]],
        plots=_by_section(plots),
        pairs=_confused(shown),
        surroundings=_surroundings(rows),
        citation=citation() if any(s["paper"] for s in sections) else "",
    )
    return html, plots


def _sections(store: ResultsStore, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One per recipe or sweep, in the paper's order, and one for rows that belong to none."""
    by_name = {row["name"]: row for row in rows}
    recipes = {r.name: r for r in list_recipes()}
    plans = store.plans()
    ordered = [n for n in recipes if n in plans] + [n for n in plans if n not in recipes]
    sections = []
    for name in ordered:
        plan = plans[name]
        recipe = recipes.get(name) if "recipe" in plan else None
        found = _found(plan, by_name)
        if found:
            sections.append(_section(str(plan.get("title") or name), recipe, found, plan))
    planned = {c for plan in plans.values() for c in (*plan["cells"], *plan.get("earlier", ()))}
    others = [row for row in rows if row["name"] not in planned]
    if others:
        sections.append(_section("Other rows", None, others, {}))
    return sections


def _found(plan: Mapping[str, Any], by_name: Mapping[str, Row]) -> list[Row]:
    """The rows of a plan, and of earlier plans of the same table those that no later one computed again."""
    found = [by_name[name] for name in plan["cells"] if name in by_name]
    places = {_place(row) for row in found}
    for name in plan.get("earlier", ()):
        if name in by_name and (place := _place(by_name[name])) not in places:
            found.append(by_name[name])
            places.add(place)
    return found


def _place(row: Row) -> str:
    """What a row measures, however many tasks it took, with whatever version of the code and of the feature file."""

    def bare(key: Mapping[str, Any]) -> dict[str, Any]:
        images = {k: v for k, v in key["images"].items() if k != "digest"}
        return {**{k: v for k, v in key.items() if k != "code"}, "images": images}

    key = bare(row["key"])
    preparation = key["preparation"] and bare(key["preparation"])
    return json.dumps({**key, "tasks": None, "preparation": preparation}, sort_keys=True)


def _section(title: str, recipe: Recipe | None, rows: Sequence[Row], plan: Mapping[str, Any]) -> dict[str, Any]:
    stand_ins = plan.get("stand_ins", {})
    made = entries(recipe, rows, stand_ins)
    tables = [_table(g, stand_ins) for g in grid(made)]
    return {
        "title": title,
        "tables": tables,
        "done": len(rows),
        "planned": len({*plan.get("cells", ()), *(row["name"] for row in rows)}),
        "missing": plan.get("missing", {}),
        "left_out": _reasons(plan.get("left_out", [])),
        "depth": _depth(depth_rows(made)),
        "checks": [c.to_dict() for c in check_claims(recipe.claims, rows)] if recipe else [],
        "paper": any(e.paper is not None for e in made),
    }


def _depth(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The columns that have numbers, as text."""
    if not rows:
        return None
    names = [n for n in rows[0] if any(row[n] is not None for row in rows)]
    body = [[f"{row[n]:.3g}" if isinstance(row[n], float) else str(row[n] or "") for n in names] for row in rows]
    return {"columns": names, "body": body}


def _table(made: Grid, stand_ins: Mapping[str, str]) -> dict[str, Any]:
    one = set(made.features.values()) == {made.title}
    rivals = len(made.labels)
    return {
        "title": made.title,
        "why": stand_ins.get(made.title, "") if one else "",
        "columns": [{"name": c, "why": "" if one else stand_ins.get(f, "")} for c, f in made.features.items()],
        "body": [
            {"label": n, "cells": [_cell(made.places.get((n, c), ()), made.best(c), rivals) for c in made.columns]}
            for n in made.labels
        ],
    }


def _cell(found: Sequence[Entry], best: float, rivals: int) -> dict[str, Any] | None:
    if not found:
        return None
    values = [e.columns["accuracy"] for e in found]
    accuracy = mean_accuracy(found)
    return {
        "accuracy": accuracy,
        "interval": found[0].columns["interval"] if len(found) == 1 else None,
        "range": f"{min(values):.1f}–{max(values):.1f}, {len(values)} seeds" if len(found) > 1 else "",
        "best": accuracy == best and rivals > 1,
        "paper": found[0].paper,
        "difference": str(found[0].difference) if found[0].difference else "",
    }


def _reasons(left_out: Sequence[Mapping[str, str]]) -> list[str]:
    return [f"{x['method']} on {x['features']}: {x['reason']}" for x in left_out]


def _summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each feature file, the best method under the usual protocol at its fewest shots."""
    usual = [c for row in rows if _usual(c := columns_of(row), row)]
    cards = []
    for features in sorted({c["features"] for c in usual}):
        here = [c for c in usual if c["features"] == features]
        shots = min(c["shots"] for c in here)
        best = max((c for c in here if c["shots"] == shots), key=lambda c: c["accuracy"])
        others = len({c["method"] for c in here if c["shots"] == shots}) - 1
        law = law_of_method(best["method"])
        colour = themed(COLOURS["blue"] if law is None else law_colour(law))
        cards.append({**best, "colour": colour, "others": others})
    return cards


def _usual(columns: Mapping[str, Any], row: Row) -> bool:
    return _plain(columns, row) and (columns["effective_classes"], columns["queries"]) == ("5", 75)


def _plain(columns: Mapping[str, Any], row: Row) -> bool:
    """A method as it is meant to be used: no setting swept, no part of it switched off, the first training seed."""
    as_meant = columns["variant"] in ("", "adaptive") and columns["training_seed"] in (None, 0)
    return as_meant and not row["key"]["settings"] and not columns["learned_on"]


def _chosen(store: ResultsStore, rows: Sequence[Row], name: str | None) -> Row:
    """The row whose confusion is shown: the one asked for, or the best, as the summary has it."""
    if name is not None:
        row = store.find(name)
        if row["key"]["kind"] != "cell":
            raise InputError(f"confusion: {name!r} is a preparation, which classifies nothing; name a cell's row")
        return row
    able = [r for r in rows if r["result"].get("confusion")] or list(rows)
    usual = [r for r in able if _usual(columns_of(r), r)] or able
    fewest = min(r["key"]["protocol"]["shots"] for r in usual)
    return max(
        (r for r in usual if r["key"]["protocol"]["shots"] == fewest), key=lambda r: float(r["result"]["accuracy"])
    )


def _confused(row: Row, most: int = 10) -> list[dict[str, Any]]:
    """The pairs of classes that are confused most often."""
    confusion = row["result"].get("confusion")
    if not confusion:
        return []
    names, totals = confusion["classes"], Counter[int]()
    for true, _, n in confusion["counts"]:
        totals[true] += n
    wrong = sorted((x for x in confusion["counts"] if x[0] != x[1]), key=lambda x: -x[2])[:most]
    return [
        {"true": names[t], "taken_for": names[p], "queries": n, "percent": 100 * n / totals[t]} for t, p, n in wrong
    ]


def _by_section(plots: Sequence[Plot]) -> dict[str, list[dict[str, Any]]]:
    sections: dict[str, list[dict[str, Any]]] = {}
    for plot in plots:
        sections.setdefault(plot.section, []).append({"svg": Markup(plot.svg()), "caption": plot.caption})
    return sections


def _surroundings(rows: Sequence[Row]) -> dict[str, str]:
    """What the rows were computed with; several values where they differ."""

    def different(values: Any) -> str:
        return ", ".join(sorted({str(v) for v in values}))

    runs = [row["run"] for row in rows]
    dates = sorted(run["date"] for run in runs)
    return {
        "code": different(row["key"]["code"] for row in rows),
        "torch": different(run["versions"]["torch"] for run in runs),
        "Python": different(run["versions"]["python"] for run in runs),
        "device": different(run.get("hardware", run["device"]) for run in runs),  # earlier rows name it as the device
        "threads of a job": different(run["threads"] for run in runs),
        "computed": dates[0][:10] if dates[0][:10] == dates[-1][:10] else f"{dates[0][:10]} to {dates[-1][:10]}",
        "time in all": f"{sum(run['seconds'] for run in runs) / 60:.1f} min of scoring",
        "feature files": different(
            f"{row['key']['images']['features']} ({row['key']['images']['digest'][:8]})" for row in rows
        ),
        "tasks a row": different(row["key"]["tasks"] for row in rows),
    }
