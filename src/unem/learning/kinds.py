"""What learning a family sees: tasks of many kinds, with any number of classes, effective classes, queries and
shots."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from unem._version import __version__
from unem.core.laws import Law
from unem.core.laws.directions import Directions
from unem.data import FeatureSet, Protocol, TaskSource
from unem.errors import InputError
from unem.learning.config import FamilyConfig
from unem.learning.family import ANY_SHOTS, FIXED, ONE_SHOTS, ScheduleFamily, graph_size
from unem.learning.gate import Gate, GateExamples, candidates, fit_gate, gate_inputs, relative, summaries
from unem.learning.losses import LOSSES
from unem.learning.parameters import linked
from unem.learning.progress import TrainingProgress
from unem.learning.unrolled import UNEM

__all__ = ["KindsObjective", "initial_family", "pairs_of"]

KEEP_EVERY = 50  # steps
LEARNING, GATING = 0xFA41, 0x6A7E  # schedules and gate see different tasks
ALL_PRESENT = 3.0  # weight of tasks with all classes present: there a wrong k is worse than no transduction
TARGET_WIDTH = 0.25  # of the gate's targets on the scale of ln k: neighbouring candidates share a task
SINGLE = ("feature_scale", "propagation")  # values that all layers share

Pairs = Sequence[tuple[FeatureSet, FeatureSet | None]]


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
        self.kinds = list(self._draw(config.shares, config.tasks, seed ^ LEARNING))
        if not self.kinds:
            few, fewest = min(config.shots), min(config.queries)
            raise InputError(f"features: too few images for tasks of {few} shots and {fewest} queries")
        self.model = UNEM(law, initial_family(law, config)).to(device)
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
            kind = self.kinds[int(torch.randint(len(self.kinds), (), generator=self.generator))]
            rows = torch.randint(len(kind.labels), (kind.batch,), generator=self.generator).to(kind.labels.device)
            log_u = self.model(kind.statistics[rows], kind.effective_classes, kind.shots)
            loss = LOSSES[self.config.loss](log_u, kind.labels[rows]) / self.config.cells_per_step
            if not bool(torch.isfinite(loss)):
                raise InputError("training diverged: the loss is not a finite number; use a lower learning rate")
            loss.backward()
            self.runs += kind.batch

    def after(self, steps: int) -> TrainingProgress:
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
        config, ranges, gate = self.config, _ranges(self.kinds), None
        self.kinds = []
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
        by_queries: dict[int, list[GateExamples]] = {}
        kinds = self._draw(self.config.gate_shares, self.config.gate_tasks, self.seed ^ GATING)
        for number, kind in enumerate(kinds, 1):
            by_queries.setdefault(kind.queries, []).append(_gate_examples(self.model, self.law, kind))
            progress(number)
        examples = [
            GateExamples(*(torch.cat([getattr(e, f.name) for e in some]) for f in fields(GateExamples)))
            for some in by_queries.values()
        ]
        gate = fit_gate(examples)
        return gate, sum(len(e.inputs) for e in examples) * len(gate.bias)

    # -- tasks
    # ------------------------------------------------------------------------------------------------------------

    def _draw(self, shares: Sequence[float], counts: Sequence[int], seed: int) -> Iterator[_Kind]:
        pools = [pool for features, query in self.pairs for pool in _pools(features, query, shares, seed)]
        for number, ((support, asked), shots) in enumerate(product(pools, self.config.shots)):
            present = set((asked or support).class_ids) & set(support.class_ids)
            named = self.config.query_classes
            allowed = tuple(sorted(present if named is None else present & set(named)))
            everything = set() if self.config.is_fixed else {len(allowed)}
            for k in sorted({min(k, len(allowed)) for k in self.config.effective_classes} | everything):
                for queries, tasks, batch in zip(self.config.queries, counts, self.config.batch, strict=True):
                    protocol = Protocol(shots=shots, effective_classes=k, queries=queries, query_classes=allowed)
                    kind = self._kind(protocol, support, asked, seed + number, tasks, batch)
                    if kind is not None:
                        yield kind

    def _kind(
        self, protocol: Protocol, support: FeatureSet, asked: FeatureSet | None, seed: int, tasks: int, batch: int
    ) -> _Kind | None:
        """Tasks of one kind; None where the images are too few."""
        law = self.law
        try:
            source = TaskSource(protocol, support, asked, seed=seed, inputs=law.inputs, device=self.device)
            task, labels = source.batch(0, tasks)
        except InputError:
            return None
        k = int(protocol.effective_classes)  # type: ignore[arg-type]
        statistics = law.propagated(law.prepare(task), graph_size(k, protocol.queries, law.neighbours))
        return _Kind(statistics, labels, k, float(protocol.shots), batch)


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


@dataclass(frozen=True)
class _Kind:
    """Tasks of one kind."""

    statistics: Any
    labels: Int[Tensor, "task query"]
    effective_classes: int
    shots: float
    batch: int

    @property
    def num_classes(self) -> int:
        return int(self.statistics.shots.shape[1])

    @property
    def queries(self) -> int:
        return int(self.labels.shape[1])


def pairs_of(
    features: FeatureSet | Sequence[FeatureSet], query: FeatureSet | Sequence[FeatureSet] | None
) -> list[tuple[FeatureSet, FeatureSet | None]]:
    supports = [features] if isinstance(features, FeatureSet) else list(features)
    queries = [query] if isinstance(query, FeatureSet) else [None] * len(supports) if query is None else list(query)
    if not supports or len(queries) != len(supports):
        raise InputError(f"query: expected one set for each of the {len(supports)} feature sets, got {len(queries)}")
    return list(zip(supports, queries, strict=True))


def _pools(
    features: FeatureSet, query: FeatureSet | None, shares: Sequence[float], seed: int
) -> Iterator[tuple[FeatureSet, FeatureSet | None]]:
    """The images, with all classes or some of them."""
    generator = torch.Generator().manual_seed(seed)
    for share in shares:
        count = max(2, round(share * features.num_classes))
        if count >= features.num_classes:
            yield features, query
            continue
        chosen = torch.randperm(features.num_classes, generator=generator)[:count].sort().values
        some = features.only_classes(chosen)
        yield some, None if query is None else _same_classes(query, some)


def _same_classes(query: FeatureSet, features: FeatureSet) -> FeatureSet:
    return query.only_classes([i for i, c in enumerate(query.class_ids) if c in set(features.class_ids)])


def _ranges(kinds: Sequence[_Kind]) -> dict[str, tuple[float, float]]:
    sizes = {name: [float(getattr(kind, name)) for kind in kinds] for name in ("queries", "num_classes", "shots")}
    return {name: (min(values), max(values)) for name, values in sizes.items()}


@torch.no_grad()
def _gate_examples(model: UNEM, law: Directions, kind: _Kind) -> GateExamples:
    ks = candidates(kind.num_classes)
    seen, truth, statistics, family = [], [], kind.statistics, model.schedule
    for k in ks:
        statistics = law.propagated(statistics, graph_size(k, kind.queries, law.neighbours))
        u, scaled = model.run(statistics, k, kind.shots, log=False)
        weight = family.at(k, kind.queries, kind.num_classes, kind.shots).query_weights[-1]
        seen.append(summaries(law, scaled, u, weight))
        truth.append(u.gather(-1, kind.labels.unsqueeze(-1)).squeeze(-1))
    inputs = gate_inputs(relative(torch.stack(seen, 1)), kind.num_classes, kind.queries, kind.shots)
    distance = torch.tensor(ks, dtype=torch.float64).log() - math.log(kind.effective_classes)
    target = (-distance.square() / (2 * TARGET_WIDTH**2)).softmax(-1)
    count, weight = len(kind.labels), ALL_PRESENT if kind.effective_classes == kind.num_classes else 1.0
    return GateExamples(
        inputs.double().cpu(),
        torch.stack(truth, 1).double().cpu(),
        target.expand(count, -1),
        torch.full((count,), weight / count, dtype=torch.float64),
    )
