"""The main job on embedded data: learn both schedules, compare them with the iterative methods, write a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

import unem
from unem._io import write_aside
from unem.core.laws import ClassModel
from unem.data.digits import digits
from unem.data.features import FeatureSet
from unem.data.source import TaskSource
from unem.errors import InputError
from unem.report import DemoReport, ShownTask, render_demo

__all__ = ["DemoResult", "run_demo"]

EFFECTIVE_CLASSES = 3
PROTOCOL = unem.Protocol(shots=3, effective_classes=EFFECTIVE_CLASSES, queries=75)
LAWS: tuple[ClassModel, ...] = (unem.Gaussian(), unem.Dirichlet())
TRAINING_TASKS, EPOCHS = 300, 15
SHOWN_TASK = 0  # fixed before anything was drawn, so that the report does not show a flattering one

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class DemoResult:
    """What the demonstration found.

    Attributes:
        evaluations: one for each method, on the same test tasks; the learned ones last of their law.
        title: what was compared, in a line.
        report: the HTML file.
        schedules: the learned schedules by method name; also beside the report as JSON.
    """

    evaluations: list[unem.Evaluation]
    title: str
    report: Path
    schedules: dict[str, unem.Schedule]


def run_demo(output: Path, *, tasks: int = 500, seed: int = 0, progress: Progress | None = None) -> DemoResult:
    """Learn, compare and report on handwritten digits; deterministic by seed but for the times.

    Writes ``report.html``, the two schedules, and the features (so that the report's commands can be tried).

    Args:
        output: folder for the files; made when it is not there.
        tasks: test tasks.
        seed: names the tasks.
        progress: called with (what is going on, steps done, steps in all).
    """
    if tasks < 1:
        raise InputError(f"tasks: expected a whole number of at least 1, got {tasks}")
    report = progress or (lambda what, done, total: None)
    features = digits()
    features.save(output / "digits.safetensors")
    with _one_thread():
        schedules = {f"unem-{law.name}": _learn(features, law, seed, report) for law in LAWS}
        for name, schedule in schedules.items():
            schedule.save(output / f"{name}.json")
        test = features.split("test")
        evaluations = _compare(_methods(schedules), test, tasks, seed, report)
        shown = _shown_task(test, schedules, seed)
    page = render_demo(DemoReport(PROTOCOL, features.class_names or (), schedules, evaluations, shown))
    with write_aside(output / "report.html") as aside:
        aside.write_text(page, encoding="utf-8")
    title = (
        f"{test.name}: {PROTOCOL.shots} shots, {EFFECTIVE_CLASSES} of {test.num_classes} classes, "
        f"{PROTOCOL.queries} queries, {tasks} tasks"
    )
    return DemoResult(evaluations, title, output / "report.html", schedules)


def _learn(features: FeatureSet, law: ClassModel, seed: int, progress: Progress) -> unem.Schedule:
    config = unem.TrainingConfig.default(law.name, tasks=TRAINING_TASKS, epochs=EPOCHS)
    schedule = unem.train(
        features.split("val"),
        law,
        PROTOCOL,
        config,
        seed=seed,
        on_epoch=lambda epoch: progress(f"learning unem-{law.name}: epochs", epoch.number, EPOCHS),
    )
    if schedule.provenance["interrupted"]:  # `train` keeps the best so far; who stops a demonstration wants it to end
        raise KeyboardInterrupt
    return schedule


def _methods(schedules: dict[str, unem.Schedule]) -> list[unem.Method]:
    """In the order of the table: by law, the learned one last."""
    return [
        *(unem.create(name) for name in ("prototypes", "soft-kmeans", "em-gaussian", "paddle")),
        unem.create("unem-gaussian", schedule=schedules["unem-gaussian"]),
        unem.create("zero-shot"),
        # Their rule needs the number of classes present; they are told it, as in their published evaluation.
        *(unem.create(name, effective_classes=EFFECTIVE_CLASSES) for name in ("em-dirichlet", "hard-em-dirichlet")),
        unem.create("unem-dirichlet", schedule=schedules["unem-dirichlet"]),
    ]


def _compare(
    methods: list[unem.Method], test: FeatureSet, tasks: int, seed: int, progress: Progress
) -> list[unem.Evaluation]:
    evaluations: list[unem.Evaluation] = []
    what = f"comparing {len(methods)} methods: tasks"
    for method in methods:
        before = len(evaluations) * tasks
        evaluations.append(
            unem.evaluate(
                method,
                test,
                PROTOCOL,
                tasks=tasks,
                seed=seed,
                progress=lambda done, _, before=before: progress(what, before + done, len(methods) * tasks),  # type: ignore[misc]
            )
        )
    return evaluations


def _shown_task(test: FeatureSet, schedules: dict[str, unem.Schedule], seed: int) -> ShownTask:
    """One of the test tasks, as both laws see it, with predictions before and after transduction."""
    predictions = {}
    for law in LAWS:
        source = TaskSource(PROTOCOL, test, seed=seed, inputs=law.inputs)
        predictions[law.name] = unem.gem(source.batch(SHOWN_TASK, 1)[0], law, schedules[f"unem-{law.name}"], trace=True)
    task, labels = TaskSource(PROTOCOL, test, seed=seed).batch(SHOWN_TASK, 1)
    return ShownTask(
        number=SHOWN_TASK,
        support=task.support[0],
        support_labels=task.support_labels[0],
        query=task.query[0],
        labels=labels[0],
        before=unem.create("prototypes").predict(task).labels[0],
        after=predictions["gaussian"].labels[0],
        traces={law: prediction.trace for law, prediction in predictions.items()},
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread of torch: for tensors this small several mostly wait for each other, on a busy machine for minutes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
