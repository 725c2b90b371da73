"""Jobs in processes of this machine."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from unem.core.memory import SHARERS
from unem.errors import InputError
from unem.experiments.cells import Job
from unem.experiments.execution import Outcome
from unem.experiments.run import origin_of

__all__ = ["LocalEngine"]

MODULE = "unem.experiments.engines.worker"


class LocalEngine:
    """Worker processes, one thread each: as many jobs at once as there are cores.

    Rows do not depend on their number. Several may share a GPU, which then never waits for one of them; each takes its
    part of the memory.

    Processes talk in lines of JSON over pipes. A worker that dies is replaced and its job reported as lost; when this
    process dies, the workers end by themselves.

    Args:
        features: folder of feature files.
        workers: processes; as many as cores (as GPUs, on GPUs) when left out.
        device: ``"cpu"``, ``"cuda"`` (all GPUs in turn) or one GPU, ``"cuda:1"``.
    """

    def __init__(
        self, features: str | os.PathLike[str], *, workers: int | None = None, device: str = "cpu", threads: int = 1
    ) -> None:
        self.devices = _devices(device)
        count = workers or (len(self.devices) if device != "cpu" else _cores())
        if count < 1:
            raise InputError(f"workers: expected at least 1, got {count}")
        self.features, self.threads = Path(features), threads
        self.answers: queue.Queue[tuple[_Worker, str | None]] = queue.Queue()
        self.sharers = -(-count // len(self.devices))
        self.workers = [_Worker(self, self.devices[i % len(self.devices)]) for i in range(count)]

    def free(self) -> int:
        return sum(worker.job is None for worker in self.workers)

    def submit(self, job: Job, prepared: dict[str, Any] | None) -> None:
        idle = [w for w in self.workers if w.job is None]
        # The worker that had this file last has it in memory.
        same = [w for w in idle if w.last_features == job.images.features]
        (same or idle)[0].send(job, prepared)

    def wait(self, seconds: float) -> list[Outcome]:
        outcomes = []
        try:
            first = self.answers.get(timeout=seconds)
        except queue.Empty:
            return []
        outcomes.append(self._outcome(*first))
        with suppress(queue.Empty):
            while True:
                outcomes.append(self._outcome(*self.answers.get_nowait()))
        return [o for o in outcomes if o is not None]

    def _outcome(self, worker: _Worker, line: str | None) -> Outcome | None:
        if line is not None:
            answer = json.loads(line)
            worker.job = None
            return Outcome(answer["name"], answer.get("row"), answer.get("error", ""))
        code, job = worker.process.wait(), worker.job
        self.workers[self.workers.index(worker)] = _Worker(self, worker.device)
        if job is None:
            return None
        return Outcome(
            job.name, error=f"its worker process died (exit code {code}), perhaps for want of memory", lost=True
        )

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Worker:
    def __init__(self, engine: LocalEngine, device: str) -> None:
        threads = str(engine.threads)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            SHARERS: str(engine.sharers),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, os.fspath(engine.features)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        self.device, self.job, self.last_features = device, None, ""
        threading.Thread(target=self._listen, args=(engine,), daemon=True).start()

    job: Job | None

    def _listen(self, engine: LocalEngine) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # else it was cut short by a death
                engine.answers.put((self, line))
        engine.answers.put((self, None))

    def send(self, job: Job, prepared: dict[str, Any] | None) -> None:
        assert self.process.stdin is not None
        self.job, self.last_features = job, job.images.features
        order = {"name": job.name, "key": job.key, "prepared": prepared, "device": self.device}
        order["origin"] = origin_of(job.method)
        with suppress(BrokenPipeError):  # it just died: the listener says so
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()

    def stop(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _devices(device: str) -> list[str]:
    if device != "cuda":
        return [device]
    import torch

    return [f"cuda:{i}" for i in range(torch.cuda.device_count())] or [device]
