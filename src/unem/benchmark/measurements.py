"""What is measured: the library against a reference, what surrounds the loop, threads, compiled forms, and growth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unem.benchmark.cases import EFFECTIVE_CLASSES, Case, Mode, feature_set, library_call
from unem.benchmark.floor import least_work
from unem.benchmark.machine import Machine
from unem.benchmark.rows import Row, against_columns, case_columns, make_row, own_columns
from unem.benchmark.timing import Contender, interleave, time_and_memory
from unem.core import GraphedMethod, Task, gem
from unem.core.numerics.backends import plain_torch
from unem.data import Draw, Protocol, TaskSource
from unem.evaluation import evaluate
from unem.learning import UNEM, TrainingConfig, train

__all__ = [
    "compare",
    "compiled_forms",
    "fitted_exponent",
    "growth",
    "many_queries",
    "pipeline",
    "thread_scaling",
]


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
    row = make_row(machine, kind="case", mode=mode, note=note, **case_columns(case), **own_columns(ours))
    row |= {"floor_ms_per_task": 1000 * floor, "distance": ours.median / floor, "bound": bound}
    if reference:
        row |= against_columns(name, reference.tasks, measured[name], ours)
    return row


def pipeline(
    case: Case, machine: Machine, *, epochs: int = 3, batches: Iterable[int] = (100,), budget: float = 2.0
) -> Iterator[Row]:
    """Rows for what surrounds the loop, in tasks a second: drawing, gathering, a whole evaluation, a whole training.

    A batch of 0 is the one that the library chooses (for drawing and gathering, all tasks of the case).
    """
    law, device = case.create_law(), machine.device
    features = feature_set(case)
    protocol = Protocol(shots=case.shots, effective_classes=min(EFFECTIVE_CLASSES, case.classes), queries=case.queries)
    source = TaskSource(protocol, features, inputs=law.inputs, device=device)
    method = UNEM(law, case.schedule())

    def timed(mode: str, call: Callable[[], object], tasks: int, note: str) -> Row:
        ours = interleave({mode: Contender(call, tasks)}, device, budget)[mode]
        columns = case_columns(replace(case, tasks=tasks))
        return make_row(machine, kind="pipeline", mode=mode, note=note, **columns, **own_columns(ours))

    for batch in batches:
        count = batch or case.tasks
        draw, note = source.draw(0, count), f"batch of {batch}" if batch else "the library's batch"
        yield timed("draw", lambda count=count: source.draw(0, count), count, f"batch of {count}")  # type: ignore[misc]
        yield timed("gather", lambda draw=draw: _gathered(source, draw), count, f"batch of {count}")  # type: ignore[misc]

        def evaluation(size: int | None = batch or None) -> object:
            return evaluate(method, features, protocol, tasks=case.tasks, device=device, batch_size=size)

        yield timed("evaluate", evaluation, case.tasks, note)
    config = TrainingConfig.default(law, tasks=case.tasks, epochs=epochs, validation_tasks=0)
    training = timed(
        "train", lambda: train(features, law, protocol, config, device=device), epochs * case.tasks, f"{epochs} epochs"
    )
    yield training


def _gathered(source: TaskSource, draw: Draw) -> tuple[Tensor, Tensor]:
    """Copies of the samples; the laws do without most of them."""
    task = source.gather(draw)
    return task.support, task.query


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
    row = make_row(machine, kind="threads", mode=mode, **case_columns(case), **own_columns(measured["all"]))
    return row | against_columns(name, case.tasks, measured[name], measured["all"])


def compiled_forms(case: Case, machine: Machine, *, budget: float = 3.0) -> Row:
    """The compiled forms (and on a GPU a recorded graph) against plain torch, operation by operation."""
    task, _ = case.make(machine.device)
    method = UNEM(case.create_law(), case.schedule())
    graphed = GraphedMethod(method)

    def plain() -> None:
        with plain_torch():
            method.predict(task)

    name = "plain"
    contenders = {"unem": Contender(lambda: graphed.predict(task), case.tasks), name: Contender(plain, case.tasks)}
    measured = interleave(contenders, machine.device, budget)
    note = f"batch of {case.tasks}" + (", graph" if torch.device(machine.device).type == "cuda" else "")
    row = make_row(
        machine, kind="compiled", mode="forward", note=note, **case_columns(case), **own_columns(measured["unem"])
    )
    return row | against_columns(name, case.tasks, measured[name], measured["unem"])


def many_queries(case: Case, machine: Machine) -> Row:
    """One task with very many queries, once: features given as tensors, all checks included; memory beyond those."""
    generator = torch.Generator(machine.device).manual_seed(0)
    task, _ = replace(case, tasks=1, queries=1).make(machine.device)
    rows = task.support_rows.table
    picked = torch.randint(len(rows), (case.queries,), device=machine.device, generator=generator)
    support, labels, query = task.support[0].clone(), task.support_labels[0], rows[picked]
    del task, rows, picked
    law, schedule = case.create_law(), case.schedule()
    if torch.device(machine.device).type == "cuda":
        gem(Task(support, labels, query[:1000]), law, schedule)  # kernels are compiled at their first call
    seconds, peak = time_and_memory(lambda: gem(Task(support, labels, query), law, schedule), machine.device)
    note = f"features {query.nbytes / 1e6:.0f} MB, beyond them {peak / 1e6:.0f} MB"
    return make_row(machine, kind="queries", mode="forward", note=note, **case_columns(case)) | {
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
    columns = case_columns(case) | {"variable": variable, "exponent": fitted_exponent(values, seconds)}
    return make_row(machine, kind="growth", mode=mode, note=points, **columns)


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of the least-squares line through the logarithms.

    Example:
        >>> round(fitted_exponent([1, 2, 4], [3.0, 12.0, 48.0]), 9)
        2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
