"""Do many jobs with an engine: only those that are missing, preparations before the cells that need them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from unem._words import counted
from unem.errors import InputError
from unem.experiments.cells import Cell, Job
from unem.experiments.store import ResultsStore
from unem.progress import Progress

__all__ = ["Engine", "Execution", "Outcome", "Progress", "execute"]

LIVES = 3  # how often a job may lose its worker before it is held to be the job's fault


@dataclass(frozen=True)
class Outcome:
    """What came of a job: a row's ``result`` and ``run``, or an error; ``lost`` when its worker died."""

    name: str
    row: dict[str, Any] | None = None
    error: str = ""
    lost: bool = False


class Engine(Protocol):
    """Somewhere to do jobs."""

    def free(self) -> int:
        """How many more jobs it would take now."""
        ...

    def submit(self, job: Job, prepared: dict[str, Any] | None) -> None: ...

    def wait(self, seconds: float) -> list[Outcome]:
        """Outcomes that have come in, after some time without any an empty list."""
        ...

    def close(self) -> None: ...


@dataclass
class Execution:
    """What came of all jobs. ``computed`` counts rows that were written now, ``found`` cells that were there before."""

    found: int = 0
    computed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def execute(
    cells: Sequence[Cell],
    store: ResultsStore,
    engine: Engine,
    progress: Callable[[Progress], None] | None = None,
) -> Execution:
    """Compute the rows that the store does not have.

    Every row is written by this process as soon as it comes in, so whatever ends it, the rows that came in are kept. A
    job that fails does not stop the others; a job whose worker dies is done again, a few times.
    """
    return _Run(cells, store, engine, progress).go()


class _Run:
    def __init__(
        self,
        cells: Sequence[Cell],
        store: ResultsStore,
        engine: Engine,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.store, self.engine, self.progress = store, engine, progress
        self.cells = {cell.name: cell for cell in cells}
        self.done = Execution()
        missing = {name: cell for name, cell in self.cells.items() if name not in store}
        self.done.found = len(self.cells) - len(missing)
        self.jobs: dict[str, Job] = dict(missing)
        self.results: dict[str, dict[str, Any]] = {}  # of preparations
        self.waiting: dict[str, list[Job]] = {}
        self.ready: deque[Job] = deque()
        self.running: set[str] = set()
        self.deaths: Counter[str] = Counter()
        self.finished = self.done.found
        self._line_up(missing.values())

    def _line_up(self, missing: Iterable[Cell]) -> None:
        """Preparations first: more cells wait for them than for anything else."""
        free: list[Job] = []
        for cell in missing:
            needed = cell.needs
            if needed is None:
                free.append(cell)
                continue
            if needed.name not in self.results and (row := self.store.get(needed.name)):
                self.results[needed.name] = row["result"]
            if needed.name in self.results:
                free.append(cell)
                continue
            if needed.name not in self.waiting:
                self.ready.append(needed)
                self.jobs[needed.name] = needed
            self.waiting.setdefault(needed.name, []).append(cell)
        self.ready.extend(free)

    def go(self) -> Execution:
        began = time.perf_counter()
        self._tell(began)
        while self.ready or self.running:
            self._submit(began)
            for outcome in self.engine.wait(0.5) if self.running else ():
                self._take(outcome)
                self._tell(began, outcome)
        self.done.seconds = time.perf_counter() - began
        return self.done

    def _submit(self, began: float) -> None:
        for _ in range(min(self.engine.free(), len(self.ready))):
            job = self.ready.popleft()
            if job.name in self.store:  # another process works on the same folder
                self.done.found += isinstance(job, Cell)
                self._finish(job)
                self._tell(began)
                continue
            needed = job.needs
            self.running.add(job.name)
            self.engine.submit(job, self.results[needed.name] if needed else None)

    def _take(self, outcome: Outcome) -> None:
        job = self.jobs[outcome.name]
        self.running.discard(job.name)
        if outcome.row is not None:
            if self.store.put(job.key, outcome.row["result"], self._run_of(job, outcome.row)) != job.name:
                raise InputError(f"row: {job.name} came back under another name")
            self.done.computed += 1
            self._finish(job, outcome.row)
        elif outcome.lost and self.deaths[job.name] + 1 < LIVES:
            self.deaths[job.name] += 1
            self.ready.appendleft(job)
        else:
            self._fail(job, outcome.error)

    def _run_of(self, job: Job, row: dict[str, Any]) -> dict[str, Any]:
        needed = job.needs
        spent = self.store.get(needed.name) if needed else None
        return {**row["run"], **({"preparation_seconds": spent["run"]["seconds"]} if spent else {})}

    def _finish(self, job: Job, row: dict[str, Any] | None = None) -> None:
        if isinstance(job, Cell):
            self.finished += 1
            return
        stored = row or self.store.get(job.name)
        assert stored is not None
        self.results[job.name] = stored["result"]
        self.ready.extendleft(self.waiting.pop(job.name, []))

    def _fail(self, job: Job, error: str) -> None:
        hit = [job] if isinstance(job, Cell) else self.waiting.pop(job.name, [])
        self.done.failed |= {j.name: error for j in hit}

    def _tell(self, began: float, outcome: Outcome | None = None) -> None:
        if self.progress:
            job = self.jobs.get(outcome.name) if outcome else None
            news = "" if job is None else f"{job.method}, {job.images.features}, {counted(job.protocol.shots, 'shot')}"
            counts = self.finished, len(self.cells), self.done.found, len(self.done.failed)
            self.progress(Progress(*counts, time.perf_counter() - began, news))
