"""Every method on the same tasks of eight settings: docs/comparison.md.

``run`` draws tasks of the paper's realistic protocol (K_eff = 5 of all classes, |Q| = 75, support and query disjoint)
from the feature files it is given, chooses each method's settings on validation tasks (or learns its schedule), runs it
with those and with its defaults, and writes one line to a CSV file for each method and setting. A line that is there is
not computed again, so that a run may be cut off and resumed; ``--seconds`` begins no further line after so many.
``table`` writes the tables of that file as markdown; into a page, between the lines :data:`MARKS`.

The slowest methods come last, with the fewer tasks that :data:`FEWER` names; the tables say so.

Run: python benchmarks/comparison.py run FEATURES... [--device cuda] [--seconds 450] [-o FILE.csv]
     python benchmarks/comparison.py table [FILE.csv] [-o FILE.md]
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import unem
from unem.evaluation import Evaluation, Validation, better_of
from unem.evaluation.prepare import Ready
from unem.evaluation.record import describe_method
from unem.methods import create_for, grid_points, list_methods, method_info

RESULTS = Path(__file__).parent / "results" / "comparison.csv"
SEED, EFFECTIVE, QUERIES = 7, 5, 75
COLUMNS = (
    "setting",
    "method",
    "accuracy",
    "interval",
    "chosen",
    "default_accuracy",
    "tuned_accuracy",
    "settings",
    "tasks",
    "validation_tasks",
    "tail_accuracy",
    "calibration_error",
    "ms_per_task",
    "tuning_seconds",
    "peak_memory_mb",
    "device",
    "hardware",
    "torch",
    "date",
)


@dataclass(frozen=True)
class Setting:
    """Tasks of one feature file."""

    name: str
    file: str
    title: str
    shots: int
    text: bool = False


SETTINGS = (
    Setting("tiny-1", "resnet18__tiny-imagenet", "Tiny-ImageNet, 1 shot", 1),
    Setting("tiny-5", "resnet18__tiny-imagenet", "Tiny-ImageNet, 5 shots", 5),
    Setting("tiny-20", "resnet18__tiny-imagenet", "Tiny-ImageNet, 20 shots", 20),
    Setting("dtd-4", "clip-rn50__dtd", "DTD, 4 shots", 4),
    Setting("ucf101-4", "clip-vit-b32__ucf101", "UCF101, 4 shots", 4),
    Setting("flowers102-4", "clip-vit-b32__flowers102", "Flowers102, 4 shots", 4),
    Setting("pets-4", "clip-vit-b32__oxford-pets-24", "Oxford Pets (24), 4 shots", 4, text=True),
    Setting("caltech-4", "clip-vit-b32__caltech-66", "Caltech (66), 4 shots", 4, text=True),
)
UNMATCHED = ", clusters not matched"
MARKS = ("<!-- tables of benchmarks/comparison.py -->", "<!-- end of tables -->")
LATER = (  # from here on a method takes seconds
    "baseline",
    "logistic",
    "pt-map",
    "tim-adm",
    "tip-adapter-f",
    "lr-ici",
    "alpha-tim",
    "tim-gd",
    "self-training",
    "unem-gaussian",
    "unem-dirichlet",
    "alpha-am",
    "unem-joint",
    "unem-plus",
)
FEWER = {"alpha-am": (200, 10), "self-training": (300, 20), "tim-gd": (1000, 20), "alpha-tim": (1000, 20)}
"""Test tasks, and validation tasks for each point of the grid, where they are not those of all."""
FEWER_AT = {
    ("alpha-am", "tiny-20"): (60, 4),
    ("self-training", "tiny-20"): (100, 8),
    # on a CPU, seconds to half a minute a task
    ("self-training", "flowers102-4"): (200, 8),
    ("self-training", "pets-4"): (200, 8),
    ("self-training", "caltech-4"): (200, 8),
    ("tim-gd", "flowers102-4"): (100, 4),
    ("alpha-am", "pets-4"): (100, 4),
    ("alpha-am", "caltech-4"): (40, 2),
    ("alpha-am", "flowers102-4"): (20, 2),
}
LEFT_OUT = {"coop": "needs a text encoder", "zero-shot-unem-joint": "is unem-joint for tasks without support"}


@dataclass(frozen=True)
class Row:
    """A line of the table to be: a method in a setting, with settings that are not to be searched."""

    setting: Setting
    method: str
    fixed: Mapping[str, Any]

    @property
    def label(self) -> str:
        return self.method + (UNMATCHED if self.fixed else "")

    def counts(self, tasks: int, validation: int) -> tuple[int, int]:
        fewer = FEWER_AT.get((self.method, self.setting.name)) or FEWER.get(self.method, (tasks, validation))
        return min(tasks, fewer[0]), min(validation, fewer[1])


def rows() -> Iterator[Row]:
    """All lines, the quick methods of all settings before the slow ones."""
    names = [info.name for info in list_methods() if info.name not in LEFT_OUT]
    for name in sorted(names, key=lambda n: (LATER.index(n) + 1 if n in LATER else 0, n)):
        info = method_info(name)
        for setting in SETTINGS:
            if info.inputs != "features" and not setting.text:
                continue
            yield Row(setting, name, {})
            if "matching" in info.options:
                yield Row(setting, name, {"matching": False})


# -- measuring ---------------------------------------------------------------------------------------------------------


class Pools:
    """Images of a file: those tested on, and those settings are chosen on."""

    def __init__(self, path: Path) -> None:
        features = unem.FeatureSet.load(path)
        disjoint = path.stem.startswith("resnet18")  # classes differ from split to split, so support does too
        self.test = (features.split("test"), None) if disjoint else (features.split("train"), features.split("test"))
        self.validation = (features.split("val"), None) if disjoint else (self.test[0], features.split("val"))


def measured(row: Row, pools: Pools, tasks: int, validation: int, device: str) -> dict[str, Any]:
    """One line of the file."""
    tasks, validation = row.counts(tasks, validation)
    protocol = unem.Protocol(shots=row.setting.shots, effective_classes=EFFECTIVE, queries=QUERIES)
    support, query = pools.test
    found: dict[str, Evaluation] = {}

    def run(method: unem.methods.Method) -> Evaluation:
        result = unem.evaluate(method, support, protocol, query=query, tasks=tasks, seed=SEED, device=device)
        found["default" if found else "tuned"] = result
        return result

    ready = _ready(row, pools, protocol, validation, device)
    best = better_of(ready, run)
    if ready.untuned is None:
        found = {} if best.run["chosen"] == "learned" else {"default": best}
    settings = ready.settings if best.run["chosen"] == "tuned" else {}
    values = {
        "setting": row.setting.name,
        "method": row.label,
        "settings": json.dumps({**row.fixed, **settings}),
        **{f"{name}_accuracy": round(result.accuracy, 3) for name, result in found.items()},
        "tasks": tasks,
        "ms_per_task": f"{1000 * best.seconds_per_task:.4g}",
        "torch": best.run["versions"]["torch"],
        **{name: round(value, 3) for name, value in best.scores.items()},
        **{name: best.run[name] for name in ("chosen", "validation_tasks", "peak_memory_mb", "hardware", "date")},
        "tuning_seconds": round(best.run["tuning_seconds"], 2),
        "device": device,
    }
    return {name: values.get(name, "") for name in COLUMNS}


def _ready(row: Row, pools: Pools, protocol: unem.Protocol, validation: int, device: str) -> Ready:
    """Learned, or tuned over its grid with what is fixed, or as it is."""
    features, query = pools.validation
    classes = pools.test[0].num_classes
    if method_info(row.method).learned:
        return Validation(features, query, validation, seed=SEED).ready(row.method, protocol, classes, device)
    default = create_for(row.method, protocol, classes, **row.fixed)
    points = [{**point, **row.fixed} for point in grid_points(row.method)]
    if len(points) == 1 or not validation:
        return Ready(default, {}, 0, 0.0)
    tune = partial(unem.tune, query=query, tasks=validation, seed=SEED, device=device)
    tuned = tune(row.method, features, protocol, grid=points)
    method = create_for(row.method, protocol, classes, **tuned.settings)
    other = describe_method(method) != describe_method(default)
    return Ready(method, tuned.settings, validation * len(points), tuned.seconds, default if other else None)


def measure(arguments: argparse.Namespace) -> None:
    """Append what is missing, line by line."""
    began, output = time.perf_counter(), Path(arguments.output)
    there = {(r["setting"], r["method"]) for r in read(output)} if output.exists() else set()
    files, pools = {path.stem: path for path in arguments.features}, {}
    for row in rows():
        setting = row.setting
        if setting.file not in files or (setting.name, row.label) in there or not _wanted(row, arguments):
            continue
        if time.perf_counter() - began > arguments.seconds:
            print("time is up; the same command goes on")
            return
        if setting.file not in pools:
            pools[setting.file] = Pools(files[setting.file])
        start = time.perf_counter()
        try:
            line = measured(row, pools[setting.file], arguments.tasks, arguments.validation, arguments.device)
        except Exception as error:  # the other lines are worth having
            print(f"{setting.name:13} {row.label:50} FAILED: {type(error).__name__}: {error}", flush=True)
            continue
        append(output, line)
        spent = time.perf_counter() - start
        print(f"{setting.name:13} {row.label:50} {line['accuracy']:6} {line['chosen']:8} {spent:6.1f} s", flush=True)
    print("complete")


def _wanted(row: Row, arguments: argparse.Namespace) -> bool:
    return not arguments.methods or row.method in arguments.methods.split(",")


def append(path: Path, line: Mapping[str, Any]) -> None:
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(line)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["date"]]  # a line that was cut off has none


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(lines: list[dict[str, str]]) -> Iterator[str]:
    """Markdown: image features alone, image and text features, cost per task."""
    most = max(int(line["tasks"]) for line in lines)
    yield "## Image features alone\n"
    yield from table(lines, [s for s in SETTINGS if not s.text], most)
    yield "\n## Image and text features\n"
    yield from table(lines, [s for s in SETTINGS if s.text], most)
    yield "\n## Time\n"
    yield from costs(lines)


def table(lines: list[dict[str, str]], settings: list[Setting], most: int) -> Iterator[str]:
    """A line for each method, a column for each setting, in the order of the mean accuracy."""
    names = {s.name for s in settings}
    cells: dict[str, dict[str, dict[str, str]]] = {}
    for line in lines:
        if line["setting"] in names:
            cells.setdefault(line["method"], {})[line["setting"]] = line
    best = {s: max((float(c[s]["accuracy"]) for c in cells.values() if s in c), default=0.0) for s in names}

    def mean(method: str) -> float:
        found = [float(line["accuracy"]) - best[s] for s, line in cells[method].items()]
        return sum(found) / len(found)

    yield "| method | " + " | ".join(s.title for s in settings) + " |"
    yield "|---|" + "---|" * len(settings)
    for method in sorted(cells, key=lambda m: -mean(m)):
        shown = [_cell(cells[method].get(s.name), best[s.name], most) for s in settings]
        yield f"| {_named(method)} | " + " | ".join(shown) + " |"


def _named(method: str) -> str:
    name, _, rest = method.partition(",")
    return f"`{name}`" + (f",{rest}" if rest else "")


def _cell(line: Mapping[str, str] | None, best: float, most: int) -> str:
    """Accuracy ± interval; t tuned, l learned, d its defaults though it was tuned; the number of tasks where fewer."""
    if line is None:
        return ""
    accuracy = f"{float(line['accuracy']):.1f}"
    if float(line["accuracy"]) == best:
        accuracy = f"**{accuracy}**"
    was_tuned = bool(line["tuned_accuracy"])
    mark = {"tuned": " t", "learned": " l", "default": " d" if was_tuned else ""}[line["chosen"]]
    fewer = f" ({line['tasks']})" if int(line["tasks"]) < most else ""
    return f"{accuracy} ± {float(line['interval']):.1f}{mark}{fewer}"


def costs(lines: list[dict[str, str]]) -> Iterator[str]:
    """Milliseconds a task, and seconds of tuning or learning."""
    on = sorted({line["hardware"] for line in lines if line["device"] != "cpu"})
    yield f"Milliseconds a task on {' and '.join(on)}, c: on one core; in brackets seconds of tuning or learning.\n"
    yield "| method | " + " | ".join(s.title for s in SETTINGS) + " |"
    yield "|---|" + "---|" * len(SETTINGS)
    by_method: dict[str, dict[str, dict[str, str]]] = {}
    for line in lines:
        by_method.setdefault(line["method"], {})[line["setting"]] = line

    def slowest(method: str) -> float:
        return max(float(line["ms_per_task"]) for line in by_method[method].values())

    for method in sorted(by_method, key=slowest):
        shown = [_cost(by_method[method].get(s.name)) for s in SETTINGS]
        yield f"| {_named(method)} | " + " | ".join(shown) + " |"


def _cost(line: Mapping[str, str] | None) -> str:
    if line is None:
        return ""
    tuning = float(line["tuning_seconds"])
    core = " c" if line["device"] == "cpu" else ""
    return f"{float(line['ms_per_task']):.3g}" + core + (f" ({tuning:.3g})" if tuning else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run")
    run.add_argument("features", nargs="+", type=Path)
    run.add_argument("-o", "--output", default=RESULTS)
    run.add_argument("--tasks", type=int, default=1000)
    run.add_argument(
        "--validation", type=int, default=60, help="validation tasks for each point of a grid; 0: defaults"
    )
    run.add_argument("--device", default="cpu")
    run.add_argument("--seconds", type=float, default=float("inf"))
    run.add_argument("--methods", default="", help="these alone, comma separated")
    run.set_defaults(do=measure)
    show = commands.add_parser("table")
    show.add_argument("results", nargs="?", type=Path, default=RESULTS)
    show.add_argument("-o", "--output", type=Path)
    show.set_defaults(do=write)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unem.errors.UnemWarning)
        arguments.do(arguments)


def write(arguments: argparse.Namespace) -> None:
    text, page = "\n".join(tables(read(arguments.results))) + "\n", arguments.output
    if page is None:
        print(text, end="")
        return
    before, (begin, end) = page.read_text(encoding="utf-8") if page.exists() else "", MARKS
    if begin in before:
        head, rest = before.split(begin)
        text = f"{head}{begin}\n{text}{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
