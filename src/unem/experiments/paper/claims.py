"""What the paper claims, checked on rows: each claim is a function that says what was seen, with intervals."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from unem._words import counted
from unem.evaluation import interval95
from unem.experiments.store import columns_of, in_order

__all__ = ["BASELINES", "CLAIMS", "Check", "Difference", "check_claims", "paired"]

Row = Mapping[str, Any]
Verdict = Literal["seen", "not seen", "no clear difference", "cannot be checked"]
BASELINES = {"unem-gaussian": "paddle", "unem-dirichlet": "em-dirichlet"}  # what each generalises


@dataclass(frozen=True)
class Difference:
    """A mean difference in points, and the half width of its 95 % interval."""

    mean: float
    interval: float

    @property
    def verdict(self) -> Verdict:
        if self.mean > self.interval:
            return "seen"
        return "not seen" if self.mean < -self.interval else "no clear difference"

    def __str__(self) -> str:
        return f"{self.mean:+.1f} ± {self.interval:.1f}".replace("-", "−")


@dataclass(frozen=True)
class Check:
    """A claim of the paper, and what was seen of it in one place (features, and shots where they matter)."""

    claim: str
    where: str
    verdict: Verdict
    seen: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def paired(row: Row, other: Row) -> Difference:
    """How much better one row is than another on the same tasks."""
    queries = row["key"]["protocol"]["queries"]
    one, two = (torch.tensor(r["result"]["correct"], dtype=torch.float64) for r in (row, other))
    difference = 100 * (one - two) / queries
    return Difference(difference.mean().item(), interval95(difference))


def check_claims(names: Iterable[str], rows: Sequence[Row]) -> list[Check]:
    """The claims of a recipe, wherever its rows allow to check them."""
    return [check for name in names for check in CLAIMS[name](rows)]


def _groups(rows: Sequence[Row], *by: str) -> dict[tuple[Any, ...], list[tuple[dict[str, Any], Row]]]:
    """Rows by some of their columns, each with its columns."""
    groups = defaultdict(list)
    for row in rows:
        columns = columns_of(row)
        groups[tuple(columns[b] for b in by)].append((columns, row))
    return dict(sorted(groups.items(), key=lambda item: in_order(item[0])))


def _variants(claim: str, better: str, worse: str) -> Callable[[Sequence[Row]], list[Check]]:
    """One variant of UNEM against another, on the same tasks."""

    def check(rows: Sequence[Row]) -> list[Check]:
        checks = []
        for (features, method, shots), group in _groups(rows, "features", "method", "shots").items():
            by_variant = {columns["variant"]: row for columns, row in group}
            if better in by_variant and worse in by_variant:
                difference = paired(by_variant[better], by_variant[worse])
                where = f"{features}, {method}, {counted(shots, 'shot')}"
                checks.append(Check(claim, where, difference.verdict, f"{difference} points"))
        return checks

    return check


def _unem_first(rows: Sequence[Row]) -> list[Check]:
    checks = []
    for (features, shots), group in _groups(rows, "features", "shots").items():
        learned = [row for columns, row in group if columns["method"] in BASELINES]
        others = [(columns, row) for columns, row in group if columns["method"] not in BASELINES]
        if learned and others:
            rival, row = max(others, key=lambda pair: pair[0]["accuracy"])
            difference = paired(learned[0], row)
            seen = f"{difference} points to {rival['method']}, the best other ({len(others)} in all)"
            checks.append(
                Check("UNEM is the best method", f"{features}, {counted(shots, 'shot')}", difference.verdict, seen)
            )
    return checks


def _fewer_shots(rows: Sequence[Row]) -> list[Check]:
    """The gain over the method that UNEM generalises, at the fewest and at the most shots."""
    checks = []
    for (features,), group in _groups(rows, "features").items():
        by = {(c["method"], c["shots"]): row for c, row in group}
        for method, baseline in BASELINES.items():
            shots = sorted(s for m, s in by if m == method and (baseline, s) in by)
            if len(shots) < 2:
                continue
            few, many = (paired(by[method, s], by[baseline, s]) for s in (shots[0], shots[-1]))
            change = Difference(few.mean - many.mean, math.hypot(few.interval, many.interval))
            seen = f"{few} at {counted(shots[0], 'shot')}, {many} at {shots[-1]}: {change} larger"
            where = f"{features}, {method} over {baseline}"
            checks.append(Check("gains are larger at fewer shots", where, change.verdict, seen))
    return checks


def _depth(rows: Sequence[Row]) -> list[Check]:
    """Deeper helps up to 7–10 layers, and no deeper."""
    checks = []
    for (features, method, shots), group in _groups(rows, "features", "method", "shots").items():
        by_depth = {
            row["key"]["preparation"]["learning"]["layers"]: row for _, row in group if row["key"]["preparation"]
        }
        if not {3, 10} <= by_depth.keys() or max(by_depth) <= 10:
            continue
        knee = max((by_depth[d] for d in (7, 10) if d in by_depth), key=lambda r: r["result"]["accuracy"])
        rise, beyond = paired(knee, by_depth[min(by_depth)]), paired(by_depth[max(by_depth)], knee)
        saturates = beyond.mean <= max(beyond.interval, 0.5)
        verdict: Verdict = "seen" if saturates and rise.verdict == "seen" else rise.verdict if saturates else "not seen"
        seen = f"7–10 layers over {min(by_depth)}: {rise}; {max(by_depth)} layers over those: {beyond}"
        where = f"{features}, {method}, {counted(shots, 'shot')}"
        checks.append(Check("depth saturates at 7–10 layers", where, verdict, seen))
    return checks


def _learned_lambda(rows: Sequence[Row]) -> list[Check]:
    """Learned λ against the best of the curve, for λ learned alone (T = 1) and for UNEM (the median of its layers)."""
    checks = []
    for (features,), group in _groups(rows, "features").items():
        curve = {r["key"]["settings"]["class_balance"]: r for _, r in group if "class_balance" in r["key"]["settings"]}
        if curve:
            best = max(curve, key=lambda beta: curve[beta]["result"]["accuracy"])
            rule = [r for c, r in group if c["method"] in BASELINES.values() and not r["key"]["settings"]]
            against_rule = f"; the rule's λ {paired(rule[0], curve[best])}" if rule else ""
            for columns, row in group:
                if columns["variant"] in ("lambda-only", "adaptive"):
                    checks += _near(features, row, best, curve[best], against_rule)
    return checks


def _near(features: str, row: Row, best: float, best_row: Row, more: str) -> list[Check]:
    """Near is within a factor of 2, or, for λ alone, a loss below a point: UNEM has other numbers to make up for λ."""
    learned, queries = row["result"]["schedule"]["class_balance"], row["key"]["protocol"]["queries"]
    alone = not isinstance(learned, list)
    beta = learned if alone else statistics.median(learned)
    gain = paired(row, best_row)
    close = 0.5 <= beta / best <= 2 or (alone and gain.mean > -1.0)
    which = "" if alone else " in the middle"
    seen = f"λ = {beta * queries:.0f}{which}, best of the curve λ = {best * queries:.0f}; {gain} points{more}"
    name = "λ learned alone is near the best one" if alone else "UNEM's λ is near the best one"
    checks = [Check(name, features, "seen" if close else "not seen", seen)]
    if not alone:
        verdict: Verdict = "not seen" if gain.verdict == "not seen" else "seen"
        checks.append(Check("UNEM is as good as EM with the best λ", features, verdict, f"{gain} points"))
    return checks


CLAIMS: Mapping[str, Callable[[Sequence[Row]], list[Check]]] = {
    "unem-first": _unem_first,
    "fewer-shots": _fewer_shots,
    "depth-saturates": _depth,
    "temperature-helps": _variants("temperature ≥ none", "adaptive", "no-temperature"),
    "adaptive-helps": _variants("adaptive ≥ fixed", "adaptive", "fixed"),
    "learned-lambda": _learned_lambda,
}
