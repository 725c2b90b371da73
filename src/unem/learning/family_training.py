"""Learn a family of schedules on validation images: tasks with any number of classes, effective classes and queries."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unem._version import __version__
from unem.core.laws.directions import GaussianPlus
from unem.data.features import FeatureSet
from unem.data.sampler import Protocol
from unem.data.source import TaskSource
from unem.errors import InputError
from unem.learning import checkpoints
from unem.learning.family import (
    ANY_SHOTS,
    FIXED,
    ONE_SHOTS,
    Gate,
    ScheduleFamily,
    candidates,
    gate_inputs,
    graph_size,
    relative,
    summaries,
)
from unem.learning.unrolled import UnrolledFamily

__all__ = ["FamilyConfig", "train_family"]

KEEP_EVERY = 50  # steps
RIDGE = 1e-5  # of the gate
LEARNING, GATING = 0xFA41, 0x6A7E  # schedules and gate see different tasks
ALL_PRESENT = 3.0  # weight of tasks with all classes present: there a wrong k is worse than no transduction
IMITATION = 0.1  # how much of the gate's loss is to name k itself
TARGET_WIDTH = 0.25  # of the gate's targets on the scale of ln k: neighbouring candidates share a task


@dataclass(frozen=True)
class FamilyConfig:
    """How a family is learned.

    Args:
        steps: Adam steps.
        cells_per_step: kinds of tasks (K, k, Q) in a step.
        learning_rate: peak of the one-cycle rate.
        layers: L.
        effective_classes: numbers k to learn from, beside all classes.
        queries: numbers Q to learn from; what the images are too few for is left out.
        tasks: tasks kept of each kind, for each Q.
        batch: tasks of a kind in a step, for each Q.
        shares: subsets of the classes to draw tasks from, so that what is learned does not depend on one K.
        loss: ``"gce"``, :func:`generalised_cross_entropy`, or ``"nll"``, −ln u.
        gate_tasks, gate_shares: the same for the gate, which must tell k for any K; without shares there is no gate.
    """

    steps: int = 800
    cells_per_step: int = 4
    learning_rate: float = 0.1
    layers: int = 10
    effective_classes: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 15, 20, 30)
    queries: tuple[int, ...] = (3, 10, 75, 300)
    tasks: tuple[int, ...] = (60, 40, 30, 6)
    batch: tuple[int, ...] = (40, 30, 20, 4)
    shares: tuple[float, ...] = (1.0, 1.0, 0.85, 0.7, 0.5)
    loss: Literal["gce", "nll"] = "gce"
    gate_tasks: tuple[int, ...] = (24, 24, 16, 8)
    gate_shares: tuple[float, ...] = (1.0, 0.85, 0.7, 0.7, 0.5, 0.5, 0.35, 0.25)

    @classmethod
    def fixed(cls, effective_classes: int, queries: int = 75, **changes: Any) -> FamilyConfig:
        """For one kind of task alone: a single schedule, as UNEM's, and no gate.

        Example:
            >>> FamilyConfig.fixed(5).is_fixed
            True
        """
        only: dict[str, Any] = {
            "effective_classes": (effective_classes,),
            "queries": (queries,),
            "tasks": (600,),
            "batch": (50,),
        }
        rest: dict[str, Any] = {
            "steps": 300,
            "cells_per_step": 1,
            "shares": (1.0,),
            "gate_tasks": (0,),
            "gate_shares": (),
        }
        return cls(**{**only, **rest, **changes})

    @property
    def is_fixed(self) -> bool:
        return len(self.effective_classes) == 1 and len(self.queries) == 1 and not self.gate_shares

    def __post_init__(self) -> None:
        for name in ("steps", "cells_per_step", "layers"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, got {getattr(self, name)!r}")
        if self.loss not in ("gce", "nll"):
            raise InputError(f"loss: expected 'gce' or 'nll', got {self.loss!r}")
        for name in ("queries", "tasks", "batch", "gate_tasks"):
            if not isinstance(getattr(self, name), tuple):
                raise InputError(
                    f"{name}: expected a tuple, one number for each of queries, got {getattr(self, name)!r}"
                )
        if not len(self.queries) == len(self.tasks) == len(self.batch) == len(self.gate_tasks):
            raise InputError("queries, tasks, batch and gate_tasks must be equally many")


@dataclass(frozen=True)
class _Cell:
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


def train_family(
    features: FeatureSet | Sequence[FeatureSet],
    law: GaussianPlus | None = None,
    *,
    shots: int | Sequence[int] = 5,
    query: FeatureSet | Sequence[FeatureSet] | None = None,
    query_classes: Sequence[int] | None = None,
    config: FamilyConfig | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> ScheduleFamily:
    """Learn a schedule for every number of effective classes and of queries, and the gate for when they are unknown.

    Args:
        features: validation images (support, and query unless ``query`` is given); several sets for a schedule that is to suit all.
        law: the law and its ingredients; with text where the features have text, when left out.
        shots: support images of each class; several numbers for a schedule that is to suit any.
        query: where query images come from, if elsewhere, for each of the feature sets.
        query_classes: classes that may be in the query, by their number in the feature file; all when left out.
        checkpoint: file that keeps the state every few steps; when it exists already, learning goes on from there, unless ``resume=False``.
        progress: called with (what is being done, steps done, steps in all).
    """
    pairs = _pairs(features, query)
    law = law or family_law(default_method(pairs[0][0]))
    config = config or FamilyConfig()
    if law.text:
        for support, _ in pairs:
            support.unit_text()  # says what is missing
    several = (shots,) if isinstance(shots, int) else tuple(shots)
    began = time.perf_counter()
    settings = {
        "trained_on": "; ".join(s.name if q is None else f"{s.name} (support), {q.name} (query)" for s, q in pairs),
        "digest": [s.digest for s, _ in pairs],
        "query_digest": [(q or s).digest for s, q in pairs],
        "shots": list(several),
        "classes": [s.num_classes for s, _ in pairs],
        "protocol": {"query_classes": None if query_classes is None else list(query_classes)},
        "config": asdict(config),
        "seed": seed,
    }
    draw = functools.partial(_cells, law, pairs, several, query_classes, config, device)
    cells = list(draw(config.shares, config.tasks, seed ^ LEARNING))
    if not cells:
        raise InputError(
            f"features: too few images for tasks of {min(several)} shots and {min(config.queries)} queries"
        )
    coordinates = FIXED if config.is_fixed else ONE_SHOTS if len(several) == 1 else ANY_SHOTS
    model = UnrolledFamily(law, config.layers, start_values(law), coordinates).to(device)
    keeper = None if checkpoint is None else _Keeper(checkpoint, {**settings, "law": asdict(law)})
    runs = _learn(model, cells, config, seed, progress, keeper, resume)
    ranges = _ranges(cells)
    del cells
    gate = None
    if config.gate_shares:
        gate, gated = _learn_gate(model, draw(config.gate_shares, config.gate_tasks, seed ^ GATING), progress)
        runs += gated
    provenance = {
        **settings,
        "runs": runs,
        "seconds": round(time.perf_counter() - began, 1),
        "versions": {"unem": __version__, "torch": torch.__version__},
    }
    return model.family(gate, provenance, config.effective_classes[0] if config.is_fixed else None, ranges)


def _pairs(
    features: FeatureSet | Sequence[FeatureSet], query: FeatureSet | Sequence[FeatureSet] | None
) -> list[tuple[FeatureSet, FeatureSet | None]]:
    supports = [features] if isinstance(features, FeatureSet) else list(features)
    queries = [query] if isinstance(query, FeatureSet) else [None] * len(supports) if query is None else list(query)
    if not supports or len(queries) != len(supports):
        raise InputError(f"query: expected one set for each of the {len(supports)} feature sets, got {len(queries)}")
    return list(zip(supports, queries, strict=True))


def _ranges(cells: Sequence[_Cell]) -> dict[str, tuple[float, float]]:
    sizes = {name: [float(getattr(cell, name)) for cell in cells] for name in ("queries", "num_classes", "shots")}
    return {name: (min(values), max(values)) for name, values in sizes.items()}


FAMILIES = {
    "unem-plus": GaussianPlus(),
    # Propagation hurts where text tells classes apart that look alike (Stanford Cars).
    "unem-joint": GaussianPlus(views=("unit",), neighbours=0, text=True),
    "zero-shot-unem-joint": GaussianPlus(views=("unit",), neighbours=0, text=True, support=False),
}


def family_law(name: str) -> GaussianPlus:
    """The law of a method that is a family of schedules."""
    return FAMILIES[name]


def default_method(features: FeatureSet) -> str:
    """``unem-joint`` where the features have text, else ``unem-plus``."""
    return "unem-joint" if features.text_features is not None and features.kind == "embeddings" else "unem-plus"


def start_values(law: GaussianPlus) -> dict[str, float]:
    """Where learning starts; scatter-scaled features need no more."""
    start = {"class_balance": 1.3, "temperature": 2.3, "feature_scale": 7.0}
    if law.neighbours:
        start["propagation"] = 0.5
    if law.text:
        start["text_weight"] = 100.0
    return start


# -- tasks ----------------------------------------------------------------------------------------------------------------


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


def _cells(
    law: GaussianPlus,
    pairs: Sequence[tuple[FeatureSet, FeatureSet | None]],
    several_shots: Sequence[int],
    query_classes: Sequence[int] | None,
    config: FamilyConfig,
    device: torch.device | str,
    shares: Sequence[float],
    counts: Sequence[int],
    seed: int,
) -> Iterator[_Cell]:
    pools = [pool for features, query in pairs for pool in _pools(features, query, shares, seed)]
    for number, ((support, asked), shots) in enumerate(product(pools, several_shots)):
        present = set((asked or support).class_ids) & set(support.class_ids)
        allowed = tuple(sorted(present if query_classes is None else present & set(query_classes)))
        everything = set() if config.is_fixed else {len(allowed)}
        for k in sorted({min(k, len(allowed)) for k in config.effective_classes} | everything):
            for queries, tasks, batch in zip(config.queries, counts, config.batch, strict=True):
                protocol = Protocol(shots=shots, effective_classes=k, queries=queries, query_classes=allowed)
                try:
                    source = TaskSource(protocol, support, asked, seed=seed + number, inputs=law.inputs, device=device)
                    task, labels = source.batch(0, tasks)
                except InputError:
                    continue  # too few images
                statistics = law.propagated(law.prepare(task), graph_size(k, queries, law.neighbours))
                yield _Cell(statistics, labels, k, float(shots), batch)


# -- learning -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Keeper:
    """Where the state of learning is kept, and of what."""

    path: str | os.PathLike[str]
    settings: dict[str, Any]

    def store(self, run: _Run) -> None:
        group = {k: v for k, v in run.optimiser.param_groups[0].items() if k != "params"}
        cycle = {k: run.cycle.state_dict()[k] for k in ("last_epoch", "_step_count")}
        state = {"step": run.step, "runs": run.runs, "group": group, "cycle": cycle}
        random = {"random": run.generator.get_state()}
        checkpoints.store(self.path, run.parameters, run.optimiser, self.settings, state, random)

    def restore(self, run: _Run) -> None:
        state, tensors = checkpoints.restore(self.path, run.parameters, run.optimiser, self.settings)
        run.step, run.runs = state["step"], state["runs"]
        run.optimiser.param_groups[0].update(state["group"])
        run.cycle.load_state_dict(state["cycle"])
        run.generator.set_state(tensors["random"].cpu())


class _Run:
    """Adam on random kinds of tasks, with a learning rate that rises and falls once."""

    def __init__(self, model: UnrolledFamily, cells: Sequence[_Cell], config: FamilyConfig, seed: int) -> None:
        self.model, self.cells, self.config = model, cells, config
        self.step = self.runs = 0
        self.generator = torch.Generator().manual_seed(seed)
        self.optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
        self.cycle = torch.optim.lr_scheduler.OneCycleLR(self.optimiser, config.learning_rate, total_steps=config.steps)

    @property
    def parameters(self) -> dict[str, Tensor]:
        return dict(self.model.named_parameters())

    def advance(self) -> None:
        """One step."""
        self.optimiser.zero_grad()
        for _ in range(self.config.cells_per_step):
            cell = self.cells[int(torch.randint(len(self.cells), (), generator=self.generator))]
            rows = torch.randint(len(cell.labels), (cell.batch,), generator=self.generator).to(cell.labels.device)
            log_u, _ = self.model(cell.statistics[rows], cell.effective_classes, cell.shots)
            loss = LOSSES[self.config.loss](log_u, cell.labels[rows]) / self.config.cells_per_step
            if not bool(torch.isfinite(loss)):
                raise InputError("training diverged: the loss is not a finite number; use a lower learning rate")
            loss.backward()
            self.runs += cell.batch
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.cycle.step()
        self.step += 1


def _learn(
    model: UnrolledFamily,
    cells: Sequence[_Cell],
    config: FamilyConfig,
    seed: int,
    progress: Callable[[str, int, int], None] | None,
    keeper: _Keeper | None,
    resume: bool,
) -> int:
    """Learn the numbers of the model; returns how many tasks it took."""
    run = _Run(model, cells, config, seed)
    if keeper and resume and Path(keeper.path).exists():
        keeper.restore(run)
    while run.step < config.steps:
        run.advance()
        if keeper and (run.step % KEEP_EVERY == 0 or run.step == config.steps):
            keeper.store(run)
        if progress:
            progress("schedules", run.step, config.steps)
    return run.runs


def generalised_cross_entropy(log_u: Float[Tensor, "task query class"], labels: Int[Tensor, "task query"]) -> Tensor:
    """``2(1 − √u_y)``: as −ln u near 1, but bounded, so that hopeless queries do not decide."""
    return 2 * (1 - (0.5 * log_u.gather(-1, labels.unsqueeze(-1))).exp()).mean()


def negative_log_likelihood(log_u: Float[Tensor, "task query class"], labels: Int[Tensor, "task query"]) -> Tensor:
    return -log_u.gather(-1, labels.unsqueeze(-1)).mean()


LOSSES = {"gce": generalised_cross_entropy, "nll": negative_log_likelihood}


@dataclass(frozen=True)
class GateExamples:
    """Tasks with the same number of queries, each tried with every candidate."""

    inputs: Float[Tensor, "task input"]
    truth: Float[Tensor, "task candidate query"]
    """What each candidate gives to the true class of each query."""
    targets: Float[Tensor, "task candidate"]
    """The right candidate, and its neighbours a little."""
    weights: Float[Tensor, " task"]


@torch.no_grad()
def _gate_examples(model: UnrolledFamily, cell: _Cell) -> GateExamples:
    ks = candidates(cell.num_classes)
    seen, truth, statistics = [], [], cell.statistics
    for k in ks:
        statistics = model.law.propagated(statistics, graph_size(k, cell.queries, model.law.neighbours))
        u, scaled = model(statistics, k, cell.shots, log=False)
        seen.append(summaries(model.law, scaled, u))
        truth.append(u.gather(-1, cell.labels.unsqueeze(-1)).squeeze(-1))
    inputs = gate_inputs(relative(torch.stack(seen, 1)), cell.num_classes, cell.queries, cell.shots)
    distance = torch.tensor(ks, dtype=torch.float64).log() - math.log(cell.effective_classes)
    target = (-distance.square() / (2 * TARGET_WIDTH**2)).softmax(-1)
    count, weight = len(cell.labels), ALL_PRESENT if cell.effective_classes == cell.num_classes else 1.0
    return GateExamples(
        inputs.double().cpu(),
        torch.stack(truth, 1).double().cpu(),
        target.expand(count, -1),
        torch.full((count,), weight / count, dtype=torch.float64),
    )


def _learn_gate(
    model: UnrolledFamily, cells: Iterator[_Cell], progress: Callable[[str, int, int], None] | None
) -> tuple[Gate, int]:
    """The gate, and how many tasks it took (each once for every candidate)."""
    by_queries: dict[int, list[GateExamples]] = {}
    for number, cell in enumerate(cells):
        by_queries.setdefault(cell.queries, []).append(_gate_examples(model, cell))
        if progress:
            progress("gate", number + 1, number + 1)
    examples = [
        GateExamples(*(torch.cat([getattr(e, f.name) for e in some]) for f in fields(GateExamples)))
        for some in by_queries.values()
    ]
    gate = fit_gate(examples)
    return gate, sum(len(e.inputs) for e in examples) * len(gate.bias)


def fit_gate(examples: Sequence[GateExamples]) -> Gate:
    """Logistic regression whose loss is that of the average it makes: ``2(1 − √Σ_i p_i u_iy)``, and a little of −ln p at the right k.

    Not to know k is no loss where all candidates agree; that is why k alone is not what the gate is taught.
    """
    inputs = torch.cat([e.inputs for e in examples])
    centre, spread = inputs.mean(0), inputs.std(0).clamp_min(1e-2)
    total = sum(float(e.weights.sum()) for e in examples)
    scaled = [((e.inputs - centre) / spread, e) for e in examples]
    w = torch.zeros(examples[0].targets.shape[1], inputs.shape[1], dtype=inputs.dtype, requires_grad=True)
    b = torch.zeros(len(w), dtype=inputs.dtype, requires_grad=True)
    optimiser = torch.optim.LBFGS([w, b], max_iter=300, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = RIDGE * w.square().sum()
        for x, e in scaled:
            log_p = (x @ w.mT + b).log_softmax(-1)
            average = torch.einsum("tc,tcq->tq", log_p.exp(), e.truth).clamp_min(1e-9)
            lost = 2 * (1 - average.sqrt()).mean(1) - IMITATION * (e.targets * log_p).sum(-1)
            value = value + (e.weights * lost).sum() / total
        value.backward()
        return value

    optimiser.step(loss)
    rows = tuple(tuple(row) for row in w.detach().tolist())
    return Gate(rows, tuple(b.detach().tolist()), tuple(centre.tolist()), tuple(spread.tolist()))
