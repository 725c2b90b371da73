"""What learning a family sees: tasks of many kinds, with any number of classes, effective classes, queries and
shots."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem._version import __version__
from unem.core.em import run
from unem.core.laws import Law
from unem.core.laws.base import Statistics
from unem.core.laws.directions import Directions
from unem.errors import InputError
from unem.learning.config import FamilyConfig
from unem.learning.family import ANY_SHOTS, FIXED, ONE_SHOTS, ScheduleFamily
from unem.learning.gate import Gate, GateExamples, candidates, fit_gate, gate_inputs, relative, summaries
from unem.learning.losses import LOSSES
from unem.learning.parameters import linked
from unem.learning.pools import Group, Kind, Pairs, draw_groups
from unem.learning.progress import TrainingProgress
from unem.learning.recorded import Recorded, add_gradient
from unem.learning.unrolled import UNEM

__all__ = ["KindsObjective", "initial_family"]

KEEP_EVERY = 50  # steps
LEARNING, GATING = 0xFA41, 0x6A7E  # schedules and gate see different tasks
ALL_PRESENT = 3.0  # weight of tasks with all classes present: there a wrong k is worse than no transduction
TARGET_WIDTH = 0.25  # of the gate's targets on the scale of ln k: neighbouring candidates share a task
SINGLE = ("feature_scale", "propagation")  # values that all layers share


class KindsObjective:
    """The objective of :func:`unem.train` for a family; see :class:`unem.learning.Objective`."""

    keep_every, clip = KEEP_EVERY, 1.0

    def __init__(self, pairs: Pairs, law: Law, config: FamilyConfig, seed: int, device: torch.device | str) -> None:
        if not isinstance(law, Directions):
            raise InputError(f"law: families are learned for Directions, got {law!r}; leave config out for a schedule")
        if law.text:
            for support, _ in pairs:
                support.unit_text()  # says what is missing
        self.pairs, self.law, self.config, self.seed, self.device = pairs, law, config, seed, device
        self._began = time.perf_counter()
        initial = initial_family(law, config)
        self.kinds, self._shelves = self._stock(initial.coordinates)
        if not self.kinds:
            few, fewest = min(config.shots), min(config.queries)
            raise InputError(f"features: too few images for tasks of {few} shots and {fewest} queries")
        self.model = UNEM(law, initial).to(device)
        self.parameters = list(self.model.parameters())
        self._add = {size: Recorded(shelf.adder(self)) for size, shelf in self._shelves.items()}
        self._share = torch.full((), 1 / config.cells_per_step, device=device)
        self._losses = torch.zeros((), device=device)
        self.steps, self.runs = config.steps, 0
        self.generator = torch.Generator().manual_seed(seed)
        self.provenance = {
            "trained_on": "; ".join(s.name if q is None else f"{s.name} (support), {q.name} (query)" for s, q in pairs),
            "digest": [s.digest for s, _ in pairs],
            "query_digest": [(q or s).digest for s, q in pairs],
            "shots": list(config.shots),
            "classes": [s.num_classes for s, _ in pairs],
            "protocol": {"query_classes": None if config.query_classes is None else list(config.query_classes)},
            "config": asdict(config),
            "seed": seed,
        }
        self.settings: dict[str, Any] = {**self.provenance, "law": asdict(law)}

    # -- a step
    # -----------------------------------------------------------------------------------------------------------

    def rate(self, step: int) -> dict[str, Any]:
        return self.config.rate(step)

    def accumulate(self, step: int) -> None:
        """Some tasks of a few kinds, drawn at random."""
        for _ in range(self.config.cells_per_step):
            stock = self.kinds[int(torch.randint(len(self.kinds), (), generator=self.generator))]
            rows = stock.rows(torch.randint(stock.tasks, (stock.batch,), generator=self.generator))
            self._losses += self._add[stock.size](rows.to(self.device), self._share)
            self.runs += stock.batch

    def gradients(self, shelf: _Shelf, rows: Int[Tensor, " task"], share: Float[Tensor, ""]) -> Tensor:
        """Add the gradient of some tasks, times a share; returns their loss."""
        log_u = self.model(shelf.statistics[rows], shelf.where.index_select(0, rows))
        loss = LOSSES[self.config.loss](log_u, shelf.labels.index_select(0, rows))
        add_gradient(loss, self.parameters, share)
        return loss.detach()

    def after(self, steps: int) -> TrainingProgress:
        # Asked now and then: each time the host waits for the device.
        if (steps % self.keep_every == 0 or steps == self.steps) and not math.isfinite(float(self._losses)):
            raise InputError("training diverged: the loss is not a finite number; use a lower learning rate")
        return TrainingProgress("schedules", steps, self.steps)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return {"runs": self.runs}, {"random": self.generator.get_state()}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.runs = values["runs"]
        self.generator.set_state(tensors["random"].cpu())

    # -- the result
    # -------------------------------------------------------------------------------------------------------

    def family(self, progress: Callable[[int], None]) -> ScheduleFamily:
        """The present values as data, with a gate, which is learned now, unless the config has none."""
        config, ranges, gate = self.config, _ranges([stock.kind for stock in self.kinds]), None
        self.kinds, self._shelves, self._add = [], {}, {}
        if config.gate_shares:
            gate, gated = self._learn_gate(progress)
            self.runs += gated
        provenance = {
            **self.provenance,
            "runs": self.runs,
            "seconds": round(time.perf_counter() - self._began, 1),
            "versions": {"unem": __version__, "torch": torch.__version__},
        }
        only = config.effective_classes[0] if config.is_fixed else None
        data: ScheduleFamily = self.model.data(gate=gate, effective_classes=only, ranges=ranges, provenance=provenance)
        return data

    def _learn_gate(self, progress: Callable[[int], None]) -> tuple[Gate, int]:
        """The gate, and how many tasks it took (each once for every candidate)."""
        config, law, family = self.config, self.law, self.model.schedule
        by_queries: dict[int, list[GateExamples]] = {}
        done = 0

        def mixed(group: Group) -> Any:
            return law.mixed(group.statistics, family.view_weights)

        drawn = config.gate_shares, config.gate_tasks, self.seed ^ GATING, self.device
        for groups in draw_groups(self.pairs, law, config, *drawn, mixed):
            for group in groups:
                by_queries.setdefault(group.kinds[0].queries, []).append(_gate_examples(family, law, group))
                done += len(group.kinds)
                progress(done)
        examples = [
            GateExamples(*(torch.cat([getattr(e, f.name) for e in some]) for f in fields(GateExamples)))
            for some in by_queries.values()
        ]
        gate = fit_gate(examples)
        return gate, sum(len(e.inputs) for e in examples) * len(gate.bias)

    # -- tasks
    # ------------------------------------------------------------------------------------------------------------

    def _stock(self, coordinates: int) -> tuple[list[_Stock], dict[Size, _Shelf]]:
        """Tasks of all kinds, prepared; those of one size on one shelf."""
        config, law = self.config, self.law
        batch = dict(zip(config.queries, config.batch, strict=True))
        stocks: list[_Stock] = []
        shelves: dict[Size, list[Group]] = {}

        def propagated(group: Group) -> Any:
            neighbours = group.of_kinds([kind.neighbours(law) for kind in group.kinds])
            return replace(law.propagated(group.statistics, neighbours), nearest=None)

        drawn = config.shares, config.tasks, self.seed ^ LEARNING, self.device
        for groups in draw_groups(self.pairs, law, config, *drawn, propagated):
            found = []
            for group in groups:
                kind, step = group.kinds[0], len(group.kinds)
                size = kind.queries, kind.num_classes
                shelf = shelves.setdefault(size, [])
                first = sum(len(other.labels) for other in shelf)
                shelf.append(group)
                for number, kind in enumerate(group.kinds):
                    found.append(_Stock(kind, size, first + number, step, group.tasks, batch[kind.queries]))
            stocks += sorted(found, key=lambda stock: stock.kind.effective_classes)  # a stable order
        return stocks, {size: _Shelf.of(groups, coordinates) for size, groups in shelves.items()}


Size = tuple[int, int]
"""Queries and classes."""


@dataclass(frozen=True)
class _Stock:
    """Tasks of one kind, and where they lie."""

    kind: Kind
    size: Size
    first: int
    step: int
    tasks: int
    batch: int

    def rows(self, tasks: Int[Tensor, " some"]) -> Int[Tensor, " some"]:
        return self.first + self.step * tasks


@dataclass(frozen=True)
class _Shelf:
    """All tasks with equally many queries and classes, and where the family sees them."""

    statistics: Any
    labels: Int[Tensor, "task query"]
    where: Float[Tensor, "task coordinate"]

    @classmethod
    def of(cls, groups: Sequence[Group], coordinates: int) -> _Shelf:
        where = [group.of_kinds([kind.position[:coordinates] for kind in group.kinds]) for group in groups]
        labels = torch.cat([group.labels for group in groups])
        return cls(Statistics.concatenated([group.statistics for group in groups]), labels, torch.cat(where))

    def adder(self, objective: KindsObjective) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda rows, share: objective.gradients(self, rows, share)


def initial_family(law: Directions, config: FamilyConfig) -> ScheduleFamily:
    """The law's start values for every kind of task: all slopes are 0."""
    coordinates = FIXED if config.is_fixed else ONE_SHOTS if len(config.shots) == 1 else ANY_SHOTS
    nothing = torch.zeros(0, 1), torch.zeros(0, dtype=torch.int64)
    values: dict[str, Any] = {}
    for name, value in law.start_values(*nothing, 0, 0.0).items():
        if name == "query_weight" and not config.learn_query_weight:
            continue
        width = 1 if name in SINGLE else config.layers
        raw = float(linked(name).inverse(torch.tensor(value, dtype=torch.float64)))
        values[name] = ((raw,) * width, *((0.0,) * width for _ in range(coordinates - 1)))
    weights = (1 / len(law.views),) * len(law.views)
    return ScheduleFamily(values, weights, law, config.layers)


def _ranges(kinds: Sequence[Kind]) -> dict[str, tuple[float, float]]:
    sizes = {name: [float(getattr(kind, name)) for kind in kinds] for name in ("queries", "num_classes", "shots")}
    return {name: (min(values), max(values)) for name, values in sizes.items()}


@torch.no_grad()
def _gate_examples(family: ScheduleFamily, law: Directions, group: Group) -> GateExamples:
    """Each task with every candidate; their views are mixed already."""
    kind, statistics, seen, truth = group.kinds[0], group.statistics, [], []
    sizes = {"queries": kind.queries, "num_classes": kind.num_classes, "shots": kind.shots}
    ks = candidates(kind.num_classes)
    for k in ks:
        schedule = family.at(k, **sizes)
        statistics = law.propagated(statistics, schedule.neighbours)
        u, scaled = run(law, statistics, schedule.values([n for n in law.numbers if n != "view_weights"]))
        seen.append(summaries(law, scaled, u, schedule.query_weights[-1]))
        truth.append(u.gather(-1, group.labels.unsqueeze(-1)).squeeze(-1))
    inputs = gate_inputs(relative(torch.stack(seen, 1)), kind.num_classes, kind.queries, kind.shots)
    effective = group.of_kinds([float(kind.effective_classes) for kind in group.kinds]).double().cpu()
    distance = torch.tensor(ks, dtype=torch.float64).log() - effective.log().unsqueeze(1)
    weights = torch.where(effective == kind.num_classes, ALL_PRESENT, 1.0).double() / group.tasks
    target = (-distance.square() / (2 * TARGET_WIDTH**2)).softmax(-1)
    return GateExamples(inputs.double().cpu(), torch.stack(truth, 1).double().cpu(), target, weights)
