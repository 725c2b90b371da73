"""Where shards are worked on: the contract, this process, and a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from unem._extras import require, start_ray
from unem.errors import InputError

__all__ = ["LocalMap", "MapEngine", "RayMap"]

RETRIES = 5  # of work whose worker or node was lost
AHEAD = 2  # shards given to each worker, so that none waits

Item = TypeVar("Item")
Result = TypeVar("Result")


class MapEngine(Protocol):
    """Something that applies a function to many things: here, or elsewhere."""

    def map(
        self, function: Callable[[Item, Any], Result], items: Sequence[Item], shared: Any
    ) -> Iterator[tuple[int, Result]]:
        """``function(item, shared)`` of all items, with their numbers, in any order."""
        ...

    def close(self) -> None: ...


class LocalMap:
    """This process, one item after another."""

    def map(
        self, function: Callable[[Item, Any], Result], items: Sequence[Item], shared: Any
    ) -> Iterator[tuple[int, Result]]:
        for number, item in enumerate(items):
            yield number, function(item, shared)

    def close(self) -> None:
        pass


class RayMap:
    """Tasks of a Ray cluster, one core each; what a lost worker was doing is done again elsewhere.

    Args:
        address: of the cluster, ``"auto"`` for the one this machine is part of; one of this machine alone is started
            when left out.
        workers: tasks at a time; as many as the cluster has cores when left out.
    """

    def __init__(self, *, address: str | None = None, workers: int | None = None) -> None:
        self.ray: Any = require("ray", "ray", "engine: 'ray'")
        self.started = start_ray(self.ray, address, workers)
        self.workers = workers or max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def map(
        self, function: Callable[[Item, Any], Result], items: Sequence[Item], shared: Any
    ) -> Iterator[tuple[int, Result]]:
        remote = self.ray.remote(num_cpus=1, max_retries=RETRIES)(_alone)
        common = self.ray.put(shared)
        coming, running = iter(enumerate(items)), {}

        def give(count: int) -> None:
            for number, item in islice(coming, count):
                running[remote.remote(function, item, common)] = number

        give(self.workers * AHEAD)
        while running:
            done, _ = self.ray.wait(list(running), num_returns=1)
            for reference in done:
                result = self._result(reference)
                give(1)
                yield running.pop(reference), result

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise InputError(str(error.cause)) from None
            raise
        except self.ray.exceptions.WorkerCrashedError as error:
            raise InputError(f"engine: Ray lost the workers of one shard {RETRIES + 1} times: {error}") from None

    def close(self) -> None:
        if self.started:
            self.ray.shutdown()


def _alone(function: Callable[[Any, Any], Any], item: Any, shared: Any) -> Any:
    """On a node: with one thread, as its one core is what Ray counts."""
    import torch

    torch.set_num_threads(1)
    return function(item, shared)
