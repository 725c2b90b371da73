r"""How fast this library is on a machine, and how far from what the machine could do at best.

**Timing.** Forms that are compared run interleaved in one process, round after round, so that whatever else the machine does
meets them alike; the ratio is taken within each round. Reported are medians and the range of the ratio.

**Floor.** The least time a case could take: the larger of its arithmetic over the machine's measured float32 rate (a large
matrix product, TF32 off) and its traffic over the measured bandwidth (a large copy). With K classes, d features, s shots, Q
queries and L layers, one task costs at least

* Gaussian forward, arithmetic: the cheaper of the two exact forms. Gram: ``2Q²d + 2QKd + (L−1)·2Q²K`` (the symmetry of the
  Gram matrix is not used); explicit means: ``(2L−1)·2QKd``. Traffic: support, labels and queries read, u written.
* Gaussian training step on kept statistics: twice the products of the loop, ``(L−1)·2Q²K`` or ``(2L−1)·2QKd`` (features are
  constant, so that a product has one in its backward pass). Traffic: the smaller statistics and labels read.
* Dirichlet forward, arithmetic: two products a layer, ``L·4QKd``, and five evaluations of (ψ, ψ') at 40 operations each for
  every element of α, ``L·200Kd``. Traffic: support, labels and queries read, u written, and in each layer ȳ and α written
  and read, as they exceed the caches of a GPU.
* Dirichlet training step: three times the products (T_z makes ln z a variable too), and one evaluation more (the implicit
  gradient). Traffic: ȳ and α are read once more in the backward pass.

``distance`` is time over floor. Element-wise work, sums over the support and launches are not counted, so 1 is out of reach.
"""

from __future__ import annotations

import csv
import ctypes
import gc
import math
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from unem._io import write_aside
from unem._version import __version__
from unem.core.em import gem
from unem.core.graphs import GraphedMethod
from unem.core.laws import ClassModel, by_name
from unem.core.memory import PeakMemory
from unem.core.numerics.backends import plain_torch
from unem.core.schedule import Schedule
from unem.core.task import Rows, Task
from unem.data import FeatureSet
from unem.data.sampler import Draw, Protocol
from unem.data.source import TaskSource
from unem.evaluation import evaluate
from unem.learning.trainer import TrainingConfig, train
from unem.learning.unrolled import LEARNABLE, UNEM
from unem.methods._registry import GEMMethod

__all__ = [
    "COLUMNS",
    "Case",
    "Contender",
    "Machine",
    "Mode",
    "compare",
    "compiled_forms",
    "fitted_exponent",
    "growth",
    "interleave",
    "least_work",
    "library_call",
    "many_queries",
    "pipeline",
    "summary",
    "thread_scaling",
    "training_step",
    "write_csv",
]

Mode = Literal["forward", "step"]
Row = dict[str, Any]

EFFECTIVE_CLASSES = 5
DIGAMMA_EVALUATIONS, DIGAMMA_FLOPS = 5, 40
SAMPLE_SECONDS = 0.02  # shorter calls are repeated, so that the clock and the launch of a call do not decide
SLOW_SECONDS = 10.0  # a reference that takes longer is timed once, cold
MAX_ROUNDS = 15

COLUMNS = (
    *("kind", "name", "law", "classes", "features", "shots", "queries", "layers", "tasks", "mode", "rounds"),
    *("ms_per_task", "tasks_per_s", "mb_per_task", "floor_ms_per_task", "distance", "bound"),
    *("against", "against_tasks", "against_ms_per_task", "against_mb_per_task", "ratio", "ratio_low", "ratio_high"),
    *("variable", "exponent", "note"),
    *("date", "unem", "torch", "device", "device_name", "driver", "threads", "flops", "bandwidth"),
)


# -- what is measured -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Synthetic tasks of one size.

    Example:
        >>> case = Case("dirichlet", classes=47, features=47, shots=4, tasks=8)
        >>> case.name, case.make("cpu")[0]
        ('dirichlet K47 d47 s4 Q75', Task(tasks=8, classes=47, support=188, queries=75, features=47))
    """

    law: str
    classes: int
    features: int
    shots: int
    queries: int = 75
    layers: int = 10
    tasks: int = 1

    @property
    def name(self) -> str:
        return f"{self.law} K{self.classes} d{self.features} s{self.shots} Q{self.queries}"

    def make(self, device: str, seed: int = 0) -> tuple[Task, Tensor]:
        """Tasks and the classes of their queries, of which few are present: clusters, or cosines to class texts."""
        generator = torch.Generator(device).manual_seed(seed)
        table = _feature_table(self, device, generator)
        images = len(table) // self.classes
        present = min(EFFECTIVE_CLASSES, self.classes)
        order = torch.rand(self.tasks, self.classes, device=device, generator=generator).argsort(1)
        drawn = torch.randint(present, (self.tasks, self.queries), device=device, generator=generator)
        truth = order.gather(1, drawn)
        labels = torch.arange(self.classes, device=device).repeat_interleave(self.shots).expand(self.tasks, -1)
        support, query = (
            Rows(table, images * y + torch.randint(images, y.shape, device=device, generator=generator))
            for y in (labels, truth)
        )
        return Task.drawn(support, query, self.classes), truth

    def class_model(self) -> ClassModel:
        return by_name(self.law)

    def schedule(self) -> Schedule:
        """Values of the size that learning finds: λ = |Q| K/K_eff for the Dirichlet law."""
        scale, beta = (0.5, 1.5) if self.law == "gaussian" else (30.0, self.classes / EFFECTIVE_CLASSES)
        return Schedule((beta,) * self.layers, (1.3,) * self.layers, scale, law=self.law)


def _feature_table(case: Case, device: str, generator: torch.Generator) -> Tensor:
    """Images ordered by class, as many of each as a benchmark has (600), or as fit in a table of 200 MB.

    Clusters for the Gaussian law; for the Dirichlet law cosines that at T_z = 30 give z as CLIP's do.
    """
    images = max(2 * case.shots, min(600, 50_000_000 // (case.classes * case.features)))
    labels = torch.arange(case.classes, device=device).repeat_interleave(images)
    table = torch.randn(len(labels), case.features, device=device, generator=generator)
    if case.law == "gaussian":
        centres = torch.randn(case.classes, case.features, device=device, generator=generator)
        return table.add_(centres.mul_(0.25)[labels])
    table.mul_(0.03).add_(0.2)
    table[torch.arange(len(labels), device=device), labels] += 0.06
    return table


def library_call(case: Case, mode: Mode, device: str) -> Callable[[], object]:
    """One forward pass from features, or one training step on the statistics that training has at hand."""
    task, labels = case.make(device)
    law, schedule = case.class_model(), case.schedule()
    if mode == "forward":
        return torch.no_grad()(lambda: gem(task, law, schedule))
    model = UNEM(law, schedule, learn=LEARNABLE).to(device)
    kept = law.prepare(task) if law.worth_keeping else None
    return training_step(lambda: model(law.prepare(task) if kept is None else kept), labels, tuple(model.parameters()))


def training_step(forward: Callable[[], Tensor], labels: Tensor, parameters: Sequence[Tensor]) -> Callable[[], None]:
    """Forward and backward of −ln u of the true class."""

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        torch.nn.functional.nll_loss(forward().flatten(0, 1), labels.flatten()).backward()

    return step


# -- the machine and the floor --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """A device and its two measured ceilings: float32 operations and bytes per second."""

    device: str
    name: str
    driver: str
    threads: int
    flops: float
    bandwidth: float

    @classmethod
    def measure(cls, device: str = "cpu") -> Machine:
        cuda = torch.device(device).type == "cuda"
        return cls(
            device=device,
            name=torch.cuda.get_device_name(device) if cuda else _processor(),
            driver=_driver() if cuda else "",
            threads=torch.get_num_threads(),
            flops=_matmul_rate(device, 8192 if cuda else 2048),
            bandwidth=_copy_bandwidth(device, 1 << (28 if cuda else 26)),
        )

    def columns(self) -> Row:
        return {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "unem": __version__,
            "torch": torch.__version__,
            "device": self.device,
            "device_name": self.name,
            "driver": self.driver,
            "threads": self.threads,
            "flops": self.flops,
            "bandwidth": self.bandwidth,
        }

    def __str__(self) -> str:
        return (
            f"{self.name} ({self.device}, {self.threads} threads{', driver ' + self.driver if self.driver else ''}), "
            f"torch {torch.__version__}: {self.flops / 1e9:,.0f} GFLOP/s, {self.bandwidth / 1e9:,.0f} GB/s"
        )


def _matmul_rate(device: str, size: int) -> float:
    a, b = torch.rand(2, size, size, device=device).unbind()
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # no TF32
    try:
        return 2 * size**3 / _best_seconds(lambda: a @ b, device)
    finally:
        torch.set_float32_matmul_precision(precision)


def _copy_bandwidth(device: str, elements: int) -> float:
    source = torch.ones(elements, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best_seconds(lambda: target.copy_(source), device)


def _best_seconds(call: Callable[[], object], device: str, times: int = 6) -> float:
    return min(_seconds(call, device) for _ in range(times))


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    return ""


@dataclass(frozen=True)
class Work:
    """Float operations and bytes of one task."""

    flops: int
    bytes: int

    def floor(self, machine: Machine) -> tuple[float, str]:
        """The least seconds on a machine, and what bounds them."""
        arithmetic, memory = self.flops / machine.flops, self.bytes / machine.bandwidth
        return max(arithmetic, memory), "arithmetic" if arithmetic >= memory else "memory"


def least_work(case: Case, mode: Mode) -> Work:
    """The fewest operations and bytes of one task, counted as the module says."""
    k, d, q, layers = case.classes, case.features, case.queries, case.layers
    inputs = 4 * (case.shots * k + q) * d + 8 * case.shots * k
    if case.law == "gaussian":
        gram, means = (layers - 1) * 2 * q * q * k, (2 * layers - 1) * 2 * q * k * d
        if mode == "step":
            return Work(2 * min(gram, means), 4 * min(q * q + q * k, (q + k) * d) + 8 * q)
        prepare = 2 * q * q * d + 2 * q * k * d
        return Work(min(prepare + gram, means), inputs + 4 * q * k)
    products, evaluation, table = 4 * q * k * d, DIGAMMA_FLOPS * k * d, 4 * k * d
    if mode == "step":
        flops = layers * (3 * products + (DIGAMMA_EVALUATIONS + 1) * evaluation)
        return Work(flops, inputs + 8 * q + layers * 6 * table)
    return Work(layers * (products + DIGAMMA_EVALUATIONS * evaluation), inputs + 4 * q * k + layers * 4 * table)


# -- timing ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contender:
    """A call that handles some tasks. ``patient`` ones are too slow to be warmed up when they take very long."""

    call: Callable[[], object]
    tasks: int
    patient: bool = False


@dataclass(frozen=True)
class Measured:
    """Seconds per task of each round, and the peak memory of one task."""

    seconds: tuple[float, ...]
    bytes: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def interleave(contenders: Mapping[str, Contender], device: str, budget: float = 3.0) -> dict[str, Measured]:
    """Time calls in turn, in as many rounds as about ``budget`` seconds allow, at least two.

    Memory is taken from a call of its own, except for a patient contender that takes longer than ten seconds: that one runs
    once, and its time stands in every round.
    """
    firsts = {name: _first_calls(c, device) for name, c in contenders.items()}
    again = {name for name, c in contenders.items() if not (c.patient and firsts[name][0] > SLOW_SECONDS)}
    repeats = {name: math.ceil(SAMPLE_SECONDS / firsts[name][0]) for name in again}
    cost = sum(repeats[name] * firsts[name][0] for name in again)
    rounds = min(MAX_ROUNDS, max(2, int(budget / cost))) if again else 1
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            seconds = _seconds(contender.call, device, repeats[name]) if name in again else firsts[name][0]
            samples[name].append(seconds / contender.tasks)
    return {n: Measured(tuple(samples[n]), firsts[n][1] / contenders[n].tasks) for n in contenders}


def _first_calls(contender: Contender, device: str) -> tuple[float, int]:
    """Seconds and peak bytes of a warm call, or of the first one where that takes too long already."""
    seconds, memory = _watched(contender.call, device)
    if contender.patient and seconds > SLOW_SECONDS:
        return seconds, memory
    return _watched(contender.call, device)


def _watched(call: Callable[[], object], device: str) -> tuple[float, int]:
    _return_memory()
    with PeakMemory(device) as memory:
        seconds = _seconds(call, device)
    return seconds, memory.bytes


def _return_memory() -> None:
    """What earlier calls have freed but the allocator still holds would hide the next one's peak."""
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def _seconds(call: Callable[[], object], device: str, repeats: int = 1) -> float:
    _wait_for(device)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    _wait_for(device)
    return max(time.perf_counter() - began, 1e-9) / repeats


def _wait_for(device: str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


# -- rows -----------------------------------------------------------------------------------------------------------------


def _row(machine: Machine, **values: Any) -> Row:
    row: Row = dict.fromkeys(COLUMNS, "") | machine.columns() | values
    unknown = row.keys() - set(COLUMNS)
    assert not unknown, unknown
    return row


def _case_columns(case: Case) -> Row:
    names = ("name", "law", "classes", "features", "shots", "queries", "layers", "tasks")
    return {name: getattr(case, name) for name in names}


def _own_columns(ours: Measured) -> Row:
    return {
        "rounds": len(ours.seconds),
        "ms_per_task": 1000 * ours.median,
        "tasks_per_s": 1 / ours.median,
        "mb_per_task": ours.bytes / 1e6,
    }


def _against_columns(name: str, tasks: int, other: Measured, ours: Measured) -> Row:
    ratios = [a / b for a, b in zip(other.seconds, ours.seconds, strict=True)]
    return {
        "against": name,
        "against_tasks": tasks,
        "against_ms_per_task": 1000 * other.median,
        "against_mb_per_task": other.bytes / 1e6,
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def compare(
    case: Case,
    mode: Mode,
    machine: Machine,
    reference: Contender | None = None,
    *,
    name: str = "direct",
    budget: float = 3.0,
    note: str = "",
) -> Row:
    """A row for the library's form, next to a reference where one is given."""
    contenders = {"unem": Contender(library_call(case, mode, machine.device), case.tasks)}
    if reference:
        contenders[name] = reference
    measured = interleave(contenders, machine.device, budget)
    ours = measured["unem"]
    floor, bound = least_work(case, mode).floor(machine)
    row = _row(machine, kind="case", mode=mode, note=note, **_case_columns(case), **_own_columns(ours))
    row |= {"floor_ms_per_task": 1000 * floor, "distance": ours.median / floor, "bound": bound}
    if reference:
        row |= _against_columns(name, reference.tasks, measured[name], ours)
    return row


def pipeline(
    case: Case, machine: Machine, *, epochs: int = 3, batches: Iterable[int] = (100,), budget: float = 2.0
) -> Iterator[Row]:
    """Rows for what surrounds the loop, in tasks a second: drawing, gathering, a whole evaluation, a whole training.

    A batch of 0 is the one that the library chooses (for drawing and gathering, all tasks of the case).
    """
    law, device = case.class_model(), machine.device
    features = _feature_set(case)
    protocol = Protocol(shots=case.shots, effective_classes=min(EFFECTIVE_CLASSES, case.classes), queries=case.queries)
    source = TaskSource(protocol, features, inputs=law.inputs, device=device)
    method = UNEM(law, case.schedule())

    def timed(mode: str, call: Callable[[], object], tasks: int, note: str) -> Row:
        ours = interleave({mode: Contender(call, tasks)}, device, budget)[mode]
        columns = _case_columns(replace(case, tasks=tasks))
        return _row(machine, kind="pipeline", mode=mode, note=note, **columns, **_own_columns(ours))

    for batch in batches:
        count = batch or case.tasks
        draw, note = source.draw(0, count), f"batch of {batch}" if batch else "the library's batch"
        yield timed("draw", lambda count=count: source.draw(0, count), count, f"batch of {count}")  # type: ignore[misc]
        yield timed("gather", lambda draw=draw: _gathered(source, draw), count, f"batch of {count}")  # type: ignore[misc]

        def evaluation(size: int | None = batch or None) -> object:
            return evaluate(method, features, protocol, tasks=case.tasks, device=device, batch_size=size)

        yield timed("evaluate", evaluation, case.tasks, note)
    config = TrainingConfig.default(case.law, tasks=case.tasks, epochs=epochs, validation_tasks=0)
    training = timed(
        "train", lambda: train(features, law, protocol, config, device=device), epochs * case.tasks, f"{epochs} epochs"
    )
    yield training


def _gathered(source: TaskSource, draw: Draw) -> tuple[Tensor, Tensor]:
    """Copies of the samples; the laws do without most of them."""
    task = source.gather(draw)
    return task.support, task.query


def _feature_set(case: Case) -> FeatureSet:
    """The case's table, with its labels."""
    table = _feature_table(case, "cpu", torch.Generator().manual_seed(0))
    labels = torch.arange(case.classes).repeat_interleave(len(table) // case.classes)
    kind: Literal["embeddings", "similarities"] = "embeddings" if case.law == "gaussian" else "similarities"
    return FeatureSet(table, labels, kind=kind, name=case.name)


def thread_scaling(case: Case, mode: Mode, machine: Machine, *, budget: float = 3.0) -> Row:
    """All threads against one; the ratio is the gain."""
    call = library_call(case, mode, machine.device)

    def on(threads: int) -> Callable[[], None]:
        def run() -> None:
            with _threads(threads):
                call()

        return run

    name = "1 thread"
    contenders = {"all": Contender(on(machine.threads), case.tasks), name: Contender(on(1), case.tasks)}
    measured = interleave(contenders, machine.device, budget)
    row = _row(machine, kind="threads", mode=mode, **_case_columns(case), **_own_columns(measured["all"]))
    return row | _against_columns(name, case.tasks, measured[name], measured["all"])


def compiled_forms(case: Case, machine: Machine, *, budget: float = 3.0) -> Row:
    """The compiled forms (and on a GPU a recorded graph) against plain torch, operation by operation."""
    task, _ = case.make(machine.device)
    method = GEMMethod("gem", case.class_model(), case.schedule())
    graphed = GraphedMethod(method)

    def plain() -> None:
        with plain_torch():
            method.predict(task)

    name = "plain"
    contenders = {"unem": Contender(lambda: graphed.predict(task), case.tasks), name: Contender(plain, case.tasks)}
    measured = interleave(contenders, machine.device, budget)
    note = f"batch of {case.tasks}" + (", graph" if torch.device(machine.device).type == "cuda" else "")
    row = _row(
        machine, kind="compiled", mode="forward", note=note, **_case_columns(case), **_own_columns(measured["unem"])
    )
    return row | _against_columns(name, case.tasks, measured[name], measured["unem"])


def many_queries(case: Case, machine: Machine) -> Row:
    """One task with very many queries, once: features given as tensors, all checks included, memory beyond the features."""
    generator = torch.Generator(machine.device).manual_seed(0)
    task, _ = replace(case, tasks=1, queries=1).make(machine.device)
    rows = task.support_rows.table
    picked = torch.randint(len(rows), (case.queries,), device=machine.device, generator=generator)
    support, labels, query = task.support[0].clone(), task.support_labels[0], rows[picked]
    del task, rows, picked
    law, schedule = case.class_model(), case.schedule()
    if torch.device(machine.device).type == "cuda":
        gem(Task(support, labels, query[:1000]), law, schedule)  # kernels are compiled at their first call
    seconds, peak = _watched(lambda: gem(Task(support, labels, query), law, schedule), machine.device)
    note = f"features {query.nbytes / 1e6:.0f} MB, beyond them {peak / 1e6:.0f} MB"
    return _row(machine, kind="queries", mode="forward", note=note, **_case_columns(case)) | {
        "rounds": 1,
        "ms_per_task": 1000 * seconds,
        "tasks_per_s": 1 / seconds,
        "mb_per_task": peak / 1e6,
    }


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def growth(
    case: Case, variable: str, values: Sequence[int], machine: Machine, *, mode: Mode = "forward", budget: float = 0.5
) -> Row:
    """How the time of a batch grows with one size, all else fixed: the exponent of a fitted power.

    For the Dirichlet law the classes are the features, so ``classes`` varies both.
    """
    seconds = []
    for value in values:
        changes: dict[str, Any] = {variable: value}
        if case.law == "dirichlet" and variable == "classes":
            changes["features"] = value
        grown = replace(case, **changes)
        contender = {"unem": Contender(library_call(grown, mode, machine.device), 1)}
        seconds.append(interleave(contender, machine.device, budget)["unem"].median)
    points = ", ".join(f"{v}: {1000 * s:.3g} ms" for v, s in zip(values, seconds, strict=True))
    columns = _case_columns(case) | {"variable": variable, "exponent": fitted_exponent(values, seconds)}
    return _row(machine, kind="growth", mode=mode, note=points, **columns)


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of the least-squares line through the logarithms.

    Example:
        >>> round(fitted_exponent([1, 2, 4], [3.0, 12.0, 48.0]), 9)
        2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def write_csv(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """The rows as a table, whole or not at all."""
    with write_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


# -- a short run for users ------------------------------------------------------------------------------------------------

SUMMARY = (
    Case("gaussian", 20, 512, 5, tasks=20),
    Case("gaussian", 160, 640, 5, tasks=8),
    Case("dirichlet", 47, 47, 4, tasks=8),
    Case("dirichlet", 100, 100, 4, tasks=4),
    Case("dirichlet", 397, 397, 4, tasks=1),
)
CUDA_BATCH = 50  # times the tasks above


def summary(device: str = "cpu", *, quick: bool = False, path: str | os.PathLike[str] | None = None) -> list[Row]:
    """Measure a few cases and print them as they come; ``path`` also gets the rows as CSV."""
    from rich import box
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console, rows = Console(), list[Row]()
    machine = Machine.measure(device)
    console.print(str(machine), highlight=False, soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("tasks", "", "ms/task", "MB/task", "× floor", "bound by"):
        table.add_column(column, no_wrap=True, justify="right" if "/" in column or "×" in column else "left")
    try:
        with Live(table, console=console, transient=True):
            for row in _summary_rows(machine, quick):
                rows.append(row)
                numbers = (row[c] for c in ("ms_per_task", "mb_per_task", "distance"))
                table.add_row(row["name"], row["mode"], *(_short(n) for n in numbers), row["bound"])
                if path:
                    write_csv(rows, path)
    finally:  # what was measured stays on the screen, however it ended
        console.print(table)
    return rows


def _short(number: float | str) -> str:
    """Three digits, without an exponent."""
    if isinstance(number, str):
        return ""
    return f"{number:.0f}" if number >= 1000 else f"{number:.3g}"


def _summary_rows(machine: Machine, quick: bool) -> Iterator[Row]:
    cases = SUMMARY[:1] + SUMMARY[2:3] if quick else SUMMARY
    many = CUDA_BATCH if torch.device(machine.device).type == "cuda" else 1
    modes: tuple[Mode, ...] = ("forward", "step")
    for case in cases:
        for mode in modes:
            yield compare(replace(case, tasks=many * case.tasks), mode, machine, budget=0.3 if quick else 1.5)
    for law in ("gaussian", "dirichlet"):
        smallest = next(c for c in cases if c.law == law)
        tasks = (30 if quick else 200) * many
        yield from pipeline(replace(smallest, tasks=tasks), machine, epochs=1, batches=(0,), budget=0.3)
