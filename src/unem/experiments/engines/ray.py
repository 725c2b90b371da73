"""Jobs on a Ray cluster: tasks with resources, features put once into the object store."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import torch

from unem._extras import require, start_ray
from unem.data import FeatureSet
from unem.experiments.cells import Job, job_from_key
from unem.experiments.engines.worker import describe_error
from unem.experiments.execution import Outcome
from unem.experiments.images import CUT_AT_ONCE, LOADED_AT_ONCE, FeatureFolder, Images
from unem.experiments.run import import_method, origin_of, run_job

__all__ = ["RayEngine", "packed", "unpacked"]

RETRIES = 5  # after the loss of a worker or of a node; Ray does them
AHEAD = 2  # jobs in flight for each that can run, so that no core waits for the driver


class RayEngine:
    """Tasks on a Ray cluster.

    Each feature file is put once into the object store, from where the nodes fetch it once each; a worker process keeps
    the sets it has built. Rows come back to this process, which alone writes them: nodes need no common folder. A
    worker or node that dies loses nothing, its tasks run elsewhere.

    Args:
        features: folder of feature files, on this machine only.
        address: of the cluster, ``"auto"`` for the one this machine is part of; a cluster of this machine alone is
            started when left out.
        device: ``"cpu"``, or ``"cuda"`` for ``gpus`` of a GPU for each job.
        workers: cores of a cluster that is started here.
    """

    def __init__(
        self,
        features: str | os.PathLike[str],
        *,
        address: str | None = None,
        device: str = "cpu",
        gpus: float = 1.0,
        workers: int | None = None,
    ) -> None:
        self.ray = _ray()
        self.folder, self.device = FeatureFolder(features), device
        self.started = start_ray(self.ray, address, workers)
        self.per_job = {"num_gpus": gpus} if device.startswith("cuda") else {"num_cpus": 1}
        remote = self.ray.remote(max_retries=RETRIES, **self.per_job)
        self.task = remote(_run_on_node)
        self.sets: dict[str, Any] = {}  # references to feature sets, by digest
        self.running: dict[Any, str] = {}

    def free(self) -> int:
        (resource, share), *_ = self.per_job.items()
        total = self.ray.cluster_resources().get(resource.removeprefix("num_").rstrip("s").upper(), 0)
        return int(max(1, total // share) * AHEAD) - len(self.running)

    def submit(self, job: Job, prepared: dict[str, Any] | None) -> None:
        # In a dict a reference is not fetched before the task starts: a worker that has the set already needs no copy.
        sets = {job.images.digest: self._put(job.images)}
        reference = self.task.remote(job.key, prepared, sets, self.device, origin_of(job.method))
        self.running[reference] = job.name

    def _put(self, images: Images) -> Any:
        if images.digest not in self.sets:
            self.sets[images.digest] = self.ray.put(packed(self.folder.of(images)))
        return self.sets[images.digest]

    def wait(self, seconds: float) -> list[Outcome]:
        done, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
        if not done:
            done, _ = self.ray.wait(list(self.running), num_returns=1, timeout=seconds)
        return [self._outcome(reference) for reference in done]

    def _outcome(self, reference: Any) -> Outcome:
        name = self.running.pop(reference)
        try:
            answer = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            # Only the loss of a worker or node comes here: the task itself catches what a job raises.
            return Outcome(name, error=f"Ray lost it {RETRIES + 1} times: {error}", lost=True)
        return Outcome(name, answer.get("row"), answer.get("error", ""))

    def close(self) -> None:
        """Ray ends what runs when its driver leaves. To cancel it first may meet a task that is just done, of which Ray
        then loses count, and aborts."""
        if self.started:
            self.ray.shutdown()
        else:
            for reference in self.running:
                self.ray.cancel(reference, force=True)
        self.running.clear()
        self.sets.clear()

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ray() -> Any:
    return require("ray", "ray", "engine: 'ray'")


# -- on the node ------------------------------------------------------------------------------------------------------


def _run_on_node(
    key: dict[str, Any],
    prepared: dict[str, Any] | None,
    sets: dict[str, Any],
    device: str,
    origin: dict[str, Any] | None,
) -> Any:
    _sets.update(sets)
    try:
        job = job_from_key(key)
        import_method(job.method, origin)
        return {"row": run_job(job, _pools, prepared, device)}
    except Exception as error:  # as in the local worker; Ray would repeat the job or end the sweep
        return {"error": describe_error(error)}


_sets: dict[str, Any] = {}


@lru_cache(CUT_AT_ONCE)
def _pools(images: Images) -> tuple[FeatureSet, FeatureSet | None]:
    return images.pools(_built(images.digest))


@lru_cache(LOADED_AT_ONCE)
def _built(digest: str) -> FeatureSet:
    return unpacked(_ray().get(_sets[digest]))


def packed(features: FeatureSet) -> dict[str, Any]:
    """Plain values and arrays: arrays are not copied when a process of the same node reads them."""
    arrays = {
        name: None if value is None else value.cpu().numpy()
        for name in ("features", "labels", "text_features", "base_mean")
        for value in (getattr(features, name),)
    }
    split = None if features.split_names is None else features.split_names.tolist()
    plain = {name: getattr(features, name) for name in ("class_names", "class_ids", "kind", "name")}
    return arrays | plain | {"split": split}


def unpacked(values: dict[str, Any]) -> FeatureSet:
    """The inverse of :func:`packed`."""
    tensors = {
        name: None if values[name] is None else torch.tensor(values[name])
        for name in ("features", "labels", "text_features", "base_mean")
    }
    return FeatureSet(**(values | tensors))
