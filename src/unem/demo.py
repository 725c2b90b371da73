"""The main job on embedded data: learn both schedules, compare them with the iterative methods, write a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from unem._io import write_aside
from unem.core import Dirichlet, Gaussian, Schedule, gem
from unem.data import FeatureSet, Protocol, TaskSource, load_digits
from unem.errors import InputError
from unem.evaluation import Evaluation, evaluate
from unem.learning import TrainingConfig, train
from unem.methods import Method, create_method
from unem.report import DemoReport, ShownLaw, ShownTask, render_demo

__all__ = ["DemoResult", "run_demo"]

EFFECTIVE_CLASSES = 3
PROTOCOL = Protocol(shots=3, effective_classes=EFFECTIVE_CLASSES, queries=75)
LAWS = (
    ShownLaw(Gaussian(), "unem-gaussian", "pixels"),
    ShownLaw(Dirichlet(), "unem-dirichlet", "similarity to printed digits"),
)
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

    evaluations: list[Evaluation]
    title: str
    report: Path
    schedules: dict[str, Schedule]


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
    features = load_digits()
    features.save(output / "digits.safetensors")
    with _one_thread():
        schedules = {law.method: _learn(features, law, seed, report) for law in LAWS}
        for name, schedule in schedules.items():
            schedule.save(output / f"{name}.json")
        test = features.split("test")
        evaluations = _compare(_methods(schedules), test, tasks, seed, report)
        shown = _shown_task(test, schedules, seed)
    page = render_demo(DemoReport(LAWS, PROTOCOL, features.class_names or (), schedules, evaluations, shown))
    with write_aside(output / "report.html") as aside:
        aside.write_text(page, encoding="utf-8")
    title = (
        f"{test.name}: {PROTOCOL.shots} shots, {EFFECTIVE_CLASSES} of {test.num_classes} classes, "
        f"{PROTOCOL.queries} queries, {tasks} tasks"
    )
    return DemoResult(evaluations, title, output / "report.html", schedules)


def _learn(features: FeatureSet, shown: ShownLaw, seed: int, progress: Progress) -> Schedule:
    schedule = train(
        features.split("val"),
        shown.law,
        PROTOCOL,
        TrainingConfig.default(shown.law, tasks=TRAINING_TASKS, epochs=EPOCHS),
        seed=seed,
        progress=lambda now: progress(f"learning {shown.method}: epochs", now.done, now.total),
    )
    if schedule.provenance["interrupted"]:  # `train` keeps the best so far; who stops a demonstration wants it to end
        raise KeyboardInterrupt
    return schedule


def _methods(schedules: dict[str, Schedule]) -> list[Method]:
    """In the order of the table: by law, the learned one last."""
    return [
        *(create_method(name) for name in ("prototypes", "soft-kmeans", "em-gaussian", "paddle")),
        create_method("unem-gaussian", schedule=schedules["unem-gaussian"]),
        create_method("zero-shot"),
        # Their rule needs the number of classes present; they are told it, as in their published evaluation.
        *(create_method(name, effective_classes=EFFECTIVE_CLASSES) for name in ("em-dirichlet", "hard-em-dirichlet")),
        create_method("unem-dirichlet", schedule=schedules["unem-dirichlet"]),
    ]


def _compare(methods: list[Method], test: FeatureSet, tasks: int, seed: int, progress: Progress) -> list[Evaluation]:
    evaluations: list[Evaluation] = []
    what = f"comparing {len(methods)} methods: tasks"
    for method in methods:
        before = len(evaluations) * tasks
        evaluations.append(
            evaluate(
                method,
                test,
                PROTOCOL,
                tasks=tasks,
                seed=seed,
                progress=lambda done, _, before=before: progress(what, before + done, len(methods) * tasks),  # type: ignore[misc]
            )
        )
    return evaluations


def _shown_task(test: FeatureSet, schedules: dict[str, Schedule], seed: int) -> ShownTask:
    """One of the test tasks, as both laws see it, with predictions before and after transduction."""
    predictions = {}
    for shown in LAWS:
        source = TaskSource(PROTOCOL, test, seed=seed, inputs=shown.law.inputs)
        task, _ = source.batch(SHOWN_TASK, 1)
        predictions[shown.law.name] = gem(task, shown.law, schedules[shown.method], trace=True)
    task, labels = TaskSource(PROTOCOL, test, seed=seed).batch(SHOWN_TASK, 1)
    return ShownTask(
        number=SHOWN_TASK,
        support=task.support[0],
        support_labels=task.support_labels[0],
        query=task.query[0],
        labels=labels[0],
        before=create_method("prototypes").predict(task).labels[0],
        after=predictions[LAWS[0].law.name].labels[0],
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
