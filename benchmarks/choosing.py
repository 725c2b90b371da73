"""How good the schedule is that ``unem.inference.auto`` chooses, beside the best shipped one in hindsight.

    python benchmarks/choosing.py DIR [--tasks 200] [--only dtd,cars] [-o results.json]

DIR holds the feature files. For each of them 1 and 5 shots, 5 classes and all classes present, 75 queries, support and
query disjoint; the number of classes present is never told. Every shipped schedule classifies the same tasks, so that
differences are paired. The *oracle* is the shipped schedule with the best mean accuracy in a setting, known only
afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import unem
from unem.data import TaskSource
from unem.evaluation import interval95
from unem.inference.auto import Choice, choose, rescaled
from unem.methods import Method

SEED = 8
BATCH = 10


@dataclass(frozen=True)
class Pool:
    """A feature file and how its tasks are drawn."""

    file: str
    support: str | None
    """Split of the support; none where both come from the same images."""
    query: str | None = "test"
    shots: tuple[int, ...] = (1, 5)
    effective: tuple[int | str, ...] = (5, "all")

    def sets(self, directory: Path) -> tuple[unem.FeatureSet, unem.FeatureSet | None]:
        features = unem.FeatureSet.load(directory / f"{self.file}.npz")
        query = features if self.query is None else features.split(self.query)
        return (query, None) if self.support is None else (features.split(self.support), query)


POOLS = (
    Pool("resnet18__tiny-imagenet", None),
    Pool("clip-rn50__dtd", "train"),
    Pool("clip-vit-b32__flowers102", "train"),
    Pool("clip-vit-b32__ucf101", "train"),
    Pool("clip-vit-b32__oxford-pets-24", "train"),
    Pool("clip-vit-b32__caltech-66", "train"),
    Pool("clip-vit-b32__stanford-cars", None, None),
    # Seven images a class: 75 queries need twenty classes, and two of five shots are missing.
    Pool("clip-vit-b32__imagenet-7k", None, None, shots=(1, 3), effective=(20, "all")),
)
KINDS: Mapping[str, tuple[str, ...]] = {
    "features": ("unem-plus", "unem-gaussian"),
    "similarities": ("unem-dirichlet",),
    "image+text": ("unem-joint", "unem-plus", "unem-dirichlet"),
}
"""Methods whose shipped schedules are rivals; of the published ones those learned for each layer."""
FEW = {"features": 200, "similarities": 20, "image+text": 20}
"""Tasks where there are 1000 classes."""


@dataclass(frozen=True)
class Row:
    """What every schedule reached in one setting, per task and in percent."""

    file: str
    inputs: str
    shots: int
    effective: int | str
    classes: int
    accuracy: Mapping[str, Tensor]
    chosen: Tensor
    preset: Mapping[str, int]
    """How often each was chosen."""
    inductive: Tensor
    gaussian: Tensor | None
    """What is chosen where unem-gaussian is asked for."""

    @property
    def oracle(self) -> str:
        return max(self.accuracy, key=lambda name: float(self.accuracy[name].mean()))

    def values(self) -> dict[str, Any]:
        lost = self.chosen - self.accuracy[self.oracle]
        return {
            "features": self.file,
            "inputs": self.inputs,
            "shots": self.shots,
            "effective_classes": self.effective,
            "classes": self.classes,
            "tasks": len(self.chosen),
            "chosen": round(float(self.chosen.mean()), 2),
            "interval": round(interval95(self.chosen), 2),
            "presets": dict(self.preset),
            "oracle": round(float(self.accuracy[self.oracle].mean()), 2),
            "oracle_preset": self.oracle,
            "lost": round(float(lost.mean()), 2),
            "lost_interval": round(interval95(lost), 2),
            "inductive": round(float(self.inductive.mean()), 2),
            "gaussian": None if self.gaussian is None else round(float(self.gaussian.mean()), 2),
            "all": {name: round(float(v.mean()), 2) for name, v in self.accuracy.items()},
        }


def measure(pool: Pool, directory: Path, kind: str, tasks: int) -> Iterator[Row]:
    """Each setting of a feature file with every shipped schedule, on the same tasks."""
    support, query = pool.sets(directory)
    if kind != "features" and support.text_features is None:
        return
    for shots in pool.shots:
        for effective in pool.effective:
            protocol = unem.Protocol(shots=shots, effective_classes=effective, queries=75)
            source = TaskSource(protocol, support, query, seed=SEED, inputs=kind)  # type: ignore[arg-type]
            yield _row(source, pool.file, kind, protocol, tasks)


def _row(source: TaskSource, file: str, kind: str, protocol: unem.Protocol, tasks: int) -> Row:
    rivals = _rivals(kind, protocol.shots)
    inductive = unem.create_method("simpleshot" if kind == "features" else "zero-shot")
    if source.num_classes >= 500:
        tasks = min(tasks, FEW[kind])
    right: dict[str, list[Tensor]] = {}
    times: dict[str, int] = {}
    for first in range(0, tasks, BATCH):
        task, labels = source.batch(first, min(BATCH, tasks - first))

        def add(name: str, prediction: unem.Prediction, labels: Tensor = labels) -> None:
            right.setdefault(name, []).append(100 * (prediction.labels == labels).double().mean(1))

        for name, method in rivals.items():
            add(name, method.predict(_as(method.inputs, task)))
        if kind == "features":
            for name in _gaussians(protocol.shots):
                add(f"{name}, rescaled", unem.gem(task, unem.Gaussian(), rescaled(unem.load_schedule(name), task)))
        add("inductive", inductive.predict(_as(inductive.inputs, task)))
        kinds = [choose(task[i], inputs=kind) for i in range(len(task))]  # type: ignore[arg-type]  # a user has one task
        for choice in kinds:
            preset = str(choice.preset)
            times[preset] = times.get(preset, 0) + 1
        add("chosen", _joined(kinds, task))
        if kind == "features":
            add("chosen gaussian", _joined([choose(task[i], method="unem-gaussian") for i in range(len(task))], task))
    found = {name: torch.cat(v) for name, v in right.items()}
    chosen, alone, gaussian = found.pop("chosen"), found.pop("inductive"), found.pop("chosen gaussian", None)
    setting = protocol.shots, protocol.effective_classes, source.num_classes
    return Row(file, kind, *setting, found, chosen, times, alone, gaussian)


def _joined(choices: list[Choice], task: unem.Task) -> unem.Prediction:
    return unem.Prediction(torch.cat([c.method.predict(task[i]).probabilities for i, c in enumerate(choices)]))


def _rivals(kind: str, shots: int) -> dict[str, Method]:
    names = [name for method in KINDS[kind] for name in unem.list_presets(f"{method}/*")]
    names = [n for n in names if not n.startswith("unem-gaussian") or n in _gaussians(shots)]
    return {name: unem.create_method(name.partition("/")[0], schedule=name) for name in names}


def _gaussians(shots: int) -> list[str]:
    """Published schedules for that many shots, or for five."""
    return list(unem.list_presets(f"unem-gaussian/*/{1 if shots == 1 else 5}-shot"))


def _as(inputs: str, task: unem.Task) -> unem.Task:
    """The task as a method wants it: images and texts as similarities."""
    if inputs != "similarities" or task.text is None:
        return task
    return task.with_features(task.support @ task.text.mT, task.query @ task.text.mT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder of feature files")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--only", default="", help="parts of file names, comma separated")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("-o", "--output", type=Path, help="JSON lines")
    arguments = parser.parse_args()
    words = [w for w in arguments.only.split(",") if w]
    for kind in arguments.kinds.split(","):
        columns = "features", "shots", "K_eff", "chosen", "oracle", "lost, paired", "inductive", "unem-gaussian chosen"
        print(f"{kind}\n| {' | '.join(columns)} |\n|{len(columns) * '---|'}")
        for pool in POOLS:
            if words and not any(w in pool.file for w in words):
                continue
            began = time.perf_counter()
            for row in measure(pool, arguments.directory, kind, arguments.tasks):
                _show(row.values())
                if arguments.output:
                    with arguments.output.open("a") as file:
                        file.write(json.dumps(row.values()) + "\n")
            print(f"{pool.file}: {time.perf_counter() - began:.0f} s", file=sys.stderr)


def _show(v: Mapping[str, Any]) -> None:
    oracle = f"{v['oracle']:.1f} ({v['oracle_preset']})"
    print(
        f"| {v['features']} (K = {v['classes']}) | {v['shots']} | {v['effective_classes']} "
        f"| {v['chosen']:.1f} ± {v['interval']:.1f} | {oracle} "
        f"| {v['lost']:+.1f} ± {v['lost_interval']:.1f} | {v['inductive']:.1f} | {v['gaussian'] or '—'} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
