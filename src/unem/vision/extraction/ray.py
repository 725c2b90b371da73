"""Shards on a Ray cluster: a pool of actors, each with the model loaded once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from unem._extras import require, start_ray
from unem.core.memory import images_per_batch
from unem.errors import InputError
from unem.vision.backbones import Backbone, create
from unem.vision.decoding import ImageError, Source, read_file
from unem.vision.extraction.pipeline import cores, encode_shards
from unem.vision.extraction.shards import Shard, ShardResult
from unem.vision.images import ImageList

__all__ = ["RayShards"]

RESTARTS = 5  # of an actor whose worker or node was lost; its shards are done again
GPU_BATCH = 128
AHEAD = 2  # shards given to each actor, so that none waits for files


class RayShards:
    """Computes shards on a Ray cluster.

    The content of the files travels with the shard, so nodes need neither the images nor a common folder; the backbone
    must be there by its name (a Hub id, a Python package, or a path that is the same everywhere). Results come back to
    this process, which alone writes them.

    Args:
        backbone: only its name is sent; each actor makes it anew.
        precision: as for ``unem.vision.backbones.create``; ``"auto"`` is bfloat16 on GPUs.
        batch_size: images in one call of the model; that of a local run on a CPU when left out, 128 on GPUs.
        address: of the cluster, ``"auto"`` for the one this machine is part of; one of this machine alone is started
            when left out.
        workers: actors; as many as the cluster has cores, or GPUs, when left out.
        cpus: cores of each actor, for decoding and, on a CPU, for the model.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        precision: str = "auto",
        batch_size: int | None = None,
        address: str | None = None,
        workers: int | None = None,
        device: str = "cpu",
        cpus: float = 1,
    ) -> None:
        self.ray = _ray()
        # Decided here, where the names of shards are made, and the same for all nodes.
        gpu = device.startswith("cuda")
        self.precision = ("bfloat16" if gpu else "float32") if precision == "auto" else precision
        self.batch_size = batch_size or (GPU_BATCH if gpu else images_per_batch(backbone.size))
        self.backbone, self.runtime = backbone.id, "torch" if gpu else backbone.runtime
        self.address, self.workers, self.device, self.cpus = address, workers, device, cpus

    @property
    def settings(self) -> dict[str, Any]:
        settings = {"precision": self.precision, "device": self.device.split(":")[0], "runtime": self.runtime}
        return settings | {"batch": self.batch_size}

    def compute(self, images: ImageList, shards: Sequence[Shard]) -> Iterator[int | tuple[Shard, ShardResult]]:
        if not shards:
            return
        started = start_ray(self.ray, self.address, self.workers)
        actors: list[Any] = []
        try:
            actors = self._actors(len(shards))
            yield from self._run(actors, images, shards)
        finally:
            for actor in actors:
                self.ray.kill(actor)
            if started:
                self.ray.shutdown()

    def _actors(self, shards: int) -> list[Any]:
        gpu = self.device.startswith("cuda")
        total = self.ray.cluster_resources().get("GPU" if gpu else "CPU", 1)
        count = min(self.workers or int(total if gpu else total // self.cpus), shards)
        # A lost actor starts again, and what it was asked for is asked again; Ray does both.
        wanted = {"num_cpus": self.cpus, "num_gpus": int(gpu), "max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        make = self.ray.remote(**wanted)(_Worker)
        settings = (self.backbone, self.device, self.precision, self.runtime, self.batch_size)
        return [make.remote(*settings) for _ in range(max(1, count))]

    def _run(
        self, actors: list[Any], images: ImageList, shards: Sequence[Shard]
    ) -> Iterator[tuple[Shard, ShardResult]]:
        coming, running = iter(shards), {}

        def give(actor: Any) -> None:
            for shard in islice(coming, 1):
                files = [_content(images.file(i)) for i in range(shard.start, shard.stop)]
                running[actor.encode.remote(files)] = (actor, shard)

        for actor in actors * AHEAD:
            give(actor)
        while running:
            done, _ = self.ray.wait(list(running), num_returns=1)
            for reference in done:
                actor, shard = running.pop(reference)
                result = self._result(reference)
                give(actor)
                yield shard, result

    def _result(self, reference: Any) -> ShardResult:
        try:
            return self.ray.get(reference)  # type: ignore[no-any-return]
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InputError):  # the backbone is not there, for example
                raise InputError(str(error.cause)) from None
            raise
        except self.ray.exceptions.RayActorError as error:
            raise InputError(
                f"engine: Ray lost a worker {RESTARTS + 1} times, or could not start it: {error}"
            ) from None


def _ray() -> Any:
    return require("ray", "ray", "engine: 'ray'")


def _content(file: Path) -> bytes | ImageError:
    try:
        return read_file(file)
    except ImageError as error:
        return error


class _Worker:
    """On a node: the model, loaded once."""

    def __init__(self, backbone: str, device: str, precision: str, runtime: str, batch_size: int) -> None:
        self.model = create(backbone, device=device, precision=precision, runtime=runtime)
        self.batch_size = batch_size

    def encode(self, sources: Sequence[Source]) -> ShardResult:
        used = _ray().get_runtime_context().get_assigned_resources().get("CPU", 1)
        found = list(encode_shards([sources], self.model, self.batch_size, max(1, min(int(used), cores()))))
        (result,) = [r for r in found if isinstance(r, ShardResult)]
        return result
