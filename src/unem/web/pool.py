"""Work for visitors: a few threads, a turn for each visitor, and cancellation."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import torch

from unem.errors import InputError
from unem.web.stopping import Stopped, check_with

__all__ = ["Job", "Pool", "Step", "Steps"]

TURN = 0.3  # seconds of work on one visitor's job before another's has its turn


@dataclass(frozen=True)
class Step:
    """How far a job is: what it does now, and how many of how many are done."""

    stage: Literal["unpack", "decode", "model", "features", "labels"]
    done: int
    total: int


Steps = Iterator[Step]
"""Work in steps of less than a second or so; between two of them it may be stopped, and within one where it is
:func:`unem.web.stopping.stoppable`."""
Status = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass(eq=False)
class Job:
    """One visitor's work.

    Args:
        steps: the work.
        changed: called, in any thread, whenever there is something new to say of it.
        ended: set once nothing of it runs any more; what is cancelled first finishes its step.
    """

    steps: Steps
    changed: Callable[[], None]
    status: Status = "waiting"
    step: Step | None = None
    error: str | None = None
    began: float = field(default_factory=time.monotonic)
    ended: threading.Event = field(default_factory=threading.Event)
    _stage_began: float = 0.0
    _cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        return self.status in ("done", "failed", "cancelled")

    def cancel(self) -> None:
        """Stop it before its next step; a visitor sees it stopped at once."""
        self._cancelled.set()
        if not self.over:
            self.status = "cancelled"
            self.changed()

    def seconds_left(self) -> float | None:
        """Of this stage, at the pace so far; None where nothing is known of it."""
        step = self.step
        if step is None or not 0 < step.done < step.total:
            return None
        return (time.monotonic() - self._stage_began) / step.done * (step.total - step.done)

    def turn(self) -> bool:
        """Work for a moment; returns whether there is more to do."""
        try:
            with check_with(self._cancelled.is_set):
                if self._more(time.monotonic() + TURN):
                    return True
        except Stopped:
            self._finish("cancelled")
        except StopIteration:
            self._finish("done")
        except InputError as error:
            self._finish("failed", str(error))
        except (MemoryError, torch.OutOfMemoryError):
            self._finish("failed", "This needs more memory than there is; try fewer images.")
        except Exception:
            traceback.print_exc(file=sys.stderr)
            self._finish("failed", "Something went wrong inside the program; the terminal it runs in says more.")
        self.close()
        return False

    def _more(self, end: float) -> bool:
        """Steps until then; returns whether there are more, which there are not for who has cancelled."""
        while not self._cancelled.is_set():
            if self.status == "waiting":
                self.status = "running"
            self._tell(next(self.steps))
            if time.monotonic() > end:
                return True
        return False

    def close(self) -> None:
        with suppress(Exception):
            self.steps.close()  # type: ignore[attr-defined]  # generators have it
        self.steps = iter(())
        self.ended.set()

    def after(self) -> Steps:
        """Steps that wait until it has ended, for work that comes after it."""
        while not self.ended.wait(0.05):
            yield Step("unpack", 0, 0)

    def _tell(self, step: Step) -> None:
        if self.step is None or step.stage != self.step.stage:
            self._stage_began = time.monotonic()
        self.step = step
        self.changed()

    def _finish(self, status: Status, error: str | None = None) -> None:
        if self.status != "cancelled":
            self.status, self.error = status, error
        self.changed()


class Pool:
    """A few threads that work on jobs in turn, so that a large one does not keep small ones waiting.

    Args:
        workers: threads.
        most: jobs that may wait or run; more are refused.
    """

    def __init__(self, workers: int = 3, most: int = 100) -> None:
        self.most = most
        self._queue: deque[Job] = deque()
        self._running = 0
        self._ready = threading.Condition()
        self._open = True
        self._threads = [threading.Thread(target=self._work, daemon=True, name="unem-work") for _ in range(workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> Job:
        with self._ready:
            if len(self._queue) + self._running >= self.most:
                raise InputError("The server is busy with other visitors; try again in a minute.")
            self._queue.append(job)
            self._ready.notify()
        return job

    def close(self) -> None:
        """Let the threads end after the step they are at."""
        with self._ready:
            self._open = False
            for job in self._queue:
                job.cancel()
            self._ready.notify_all()

    def _work(self) -> None:
        while True:
            with self._ready:
                while self._open and not self._queue:
                    self._ready.wait()
                if not self._queue:
                    return
                job, self._running = self._queue.popleft(), self._running + 1
            more = job.turn()
            with self._ready:
                self._running -= 1
                if more and self._open:
                    self._queue.append(job)
                    self._ready.notify()
            del job  # a thread that waits keeps nothing of its last visitor
