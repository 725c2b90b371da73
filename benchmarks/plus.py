"""What UNEM+ and UNEM-joint reach, what each ingredient is worth, and how well a schedule generalises.

    python benchmarks/plus.py accuracy DIR [--only tiny-5,dtd] [--seeds 5] # learned for five classes, five seeds
    python benchmarks/plus.py views DIR [--only tiny-5,dtd] [--seeds 1]    # which views suit which features
    python benchmarks/plus.py ablation DIR [--only tiny-5,dtd,ucf101]      # each ingredient removed, paired
    python benchmarks/plus.py transfer DIR                                 # learned on A, tested on B, K_eff not told
    python benchmarks/plus.py shipped DIR                                  # the library's schedules, tested
    python benchmarks/plus.py supports DIR                                 # unbalanced supports, with these
    python benchmarks/plus.py streams DIR                                  # batches one after another, with these
    python benchmarks/plus.py cost DIR                                     # time, against unem-gaussian
    python benchmarks/plus.py ship DIR                                     # the schedules that come with the library

The first three take `--jobs N` (processes) and `-o FILE.json`, to which results are added as they come, in place of
earlier ones of the same setting and seed: benchmarks/results/plus.json. The others print a table, for a file such as
benchmarks/results/plus-shipped.md.
DIR holds the feature files. Realistic protocol: K_eff = 5, |Q| = 75, support and query disjoint.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import torch

import unem
from unem.core import Directions
from unem.data import TaskSource
from unem.evaluation import Evaluation, interval95
from unem.learning import FamilyConfig, ScheduleFamily, TrainingConfig
from unem.methods import Method, method_for, method_info

PRESETS = Path(__file__).parents[1] / "src" / "unem" / "presets" / "families"


@dataclass(frozen=True)
class Setting:
    """Where tasks are drawn from, to learn and to test."""

    file: str
    shots: int
    method: str
    support: str | None = "train"
    """Split of the support; none where support and query come from the same images."""
    halves: bool = False
    """Learn with one half of the classes in the query, test with the other (all are in the support)."""

    def pools(self, directory: Path, split: str) -> tuple[unem.FeatureSet, unem.FeatureSet | None]:
        features = unem.FeatureSet.load(directory / f"{self.file}.npz")
        if self.halves:
            return features, None
        return (
            (features.split(split), None)
            if self.support is None
            else (features.split(self.support), features.split(split))
        )

    def query_classes(self, directory: Path, split: str) -> tuple[int, ...] | None:
        if not self.halves:
            return None
        classes = self.pools(directory, split)[0].num_classes
        return tuple(range(classes // 2) if split == "val" else range(classes // 2, classes))


SETTINGS = {
    "tiny-1": Setting("resnet18__tiny-imagenet", 1, "unem-plus", None),
    "tiny-5": Setting("resnet18__tiny-imagenet", 5, "unem-plus", None),
    "tiny-20": Setting("resnet18__tiny-imagenet", 20, "unem-plus", None),
    "dtd": Setting("clip-rn50__dtd", 4, "unem-plus"),
    "ucf101": Setting("clip-vit-b32__ucf101", 4, "unem-plus"),
    "flowers102": Setting("clip-vit-b32__flowers102", 4, "unem-plus"),
    "cars": Setting("clip-vit-b32__stanford-cars", 4, "unem-joint", None, halves=True),
    "caltech": Setting("clip-vit-b32__caltech-66", 4, "unem-joint"),
    "pets": Setting("clip-vit-b32__oxford-pets-24", 4, "unem-joint"),
}


def learned(
    name: str,
    arguments: argparse.Namespace,
    law: Directions | None = None,
    config: FamilyConfig | None = None,
    **more: object,
) -> ScheduleFamily:
    setting = SETTINGS[name]
    support, query = setting.pools(arguments.directory, "val")
    classes = setting.query_classes(arguments.directory, "val")
    config = replace(config or FamilyConfig(), shots=(setting.shots,), query_classes=classes)
    return unem.train(support, law or _law(setting.method), config=config, query=query, **more)


def _law(method: str) -> Directions:
    law = method_info(method).law
    assert isinstance(law, Directions)
    return law


def _with(family: ScheduleFamily, **settings: object) -> Method:
    """The method that a family was learned for."""
    return unem.create_method(method_for(family).name, schedule=family, **settings)


def evaluated(
    name: str, family: ScheduleFamily, arguments: argparse.Namespace, tasks: int | None = None, split: str = "test"
) -> Evaluation:
    setting = SETTINGS[name]
    support, query = setting.pools(arguments.directory, split)
    kind = unem.Protocol(shots=setting.shots, query_classes=setting.query_classes(arguments.directory, split))
    method = _with(family)
    return unem.evaluate(method, support, kind, query=query, tasks=tasks or arguments.tasks, seed=7)


FIVE = FamilyConfig.fixed(5)


@dataclass(frozen=True)
class Job:
    """One schedule, learned for five classes and tested: a process of its own."""

    setting: str
    what: str
    """How it differs from the method's own law, in a word."""
    seed: int
    law: Directions
    config: FamilyConfig = FIVE

    def run(self, arguments: argparse.Namespace) -> dict[str, object]:
        torch.set_num_threads(1)
        family = learned(self.setting, arguments, self.law, self.config, seed=self.seed)
        result = evaluated(self.setting, family, arguments)
        return {
            "setting": self.setting,
            "what": self.what,
            "seed": self.seed,
            "accuracy": result.accuracy,
            "interval": result.interval,
            "validation": evaluated(self.setting, family, arguments, 500, split="val").accuracy,
            "seconds": family.provenance["seconds"],
            "per_task": [round(v, 2) for v in result.per_task.tolist()],
            "family": family.to_dict(),
        }


def run_jobs(jobs: Sequence[Job], arguments: argparse.Namespace) -> list[dict[str, object]]:
    """The results in the order of the jobs; each is written as soon as it is there."""
    found: dict[int, dict[str, object]] = {}
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(job.run, arguments): number for number, job in enumerate(jobs)}
        for done in as_completed(running):
            found[running[done]] = done.result()
            row = found[running[done]]
            print(f"{row['setting']}, {row['what']}, seed {row['seed']}: {row['accuracy']:.2f}", file=sys.stderr)
            if arguments.output:
                _add(row, arguments.output)
    return [found[number] for number in sorted(found)]


def _add(row: dict[str, object], file: Path) -> None:
    """A line for the result, without its tasks and all its values."""
    kept = {k: round(v, 2) if isinstance(v, float) else v for k, v in row.items() if k not in ("per_task", "family")}
    family: dict[str, object] = row["family"]
    kept |= {"views": family["law"]["views"], "view_weights": [round(w, 3) for w in family["view_weights"]]}
    key = ("setting", "what", "seed")
    rows = json.loads(file.read_text()) if file.exists() else []
    rows = [r for r in rows if [r[k] for k in key] != [row[k] for k in key]] + [kept]
    aside = file.with_suffix(".part")
    aside.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    aside.replace(file)


def accuracy(arguments: argparse.Namespace) -> Iterator[str]:
    names = list(arguments.only or SETTINGS)
    laws = {name: _law(SETTINGS[name].method) for name in names}
    seeds = range(arguments.seeds)
    rows = run_jobs([Job(name, "default", seed, laws[name]) for name in names for seed in seeds], arguments)
    yield "| setting | method | accuracy %, each training seed | mean, spread | 95 % interval of a seed | learning, s |"
    yield "|---|---|---|---|---|---|"
    for name in names:
        own = [row for row in rows if row["setting"] == name]
        each = torch.tensor([row["accuracy"] for row in own])
        spread = f"{each.mean():.2f} ± {each.std() if len(each) > 1 else 0:.2f}"
        listed = ", ".join(f"{v:.1f}" for v in each.tolist())
        took = f"{sum(row['seconds'] for row in own) / len(own):.0f}"
        yield f"| {name} | `{SETTINGS[name].method}` | {listed} | {spread} | {own[-1]['interval']:.1f} | {took} |"


COMPOSITIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "unem-plus": (
        ("unit", "root"),
        ("white",),
        ("root", "white"),
        ("root", "unit", "white"),
        ("unit", "root", "white"),
        ("root", "white-root"),
        ("root", "unit", "white", "white-root"),
    ),
    "unem-joint": (("unit",), ("white",), ("unit", "white"), ("root", "white"), ("root", "unit", "white")),
}


def views(arguments: argparse.Namespace) -> Iterator[str]:
    """Which views suit which features, on validation tasks, which is where the choice belongs, and on test tasks."""
    yield "| setting | views | validation | test | learned weights |"
    yield "|---|---|---|---|---|"
    jobs = [
        Job(name, ", ".join(some), seed, replace(_law(SETTINGS[name].method), views=some))
        for seed in range(arguments.seeds)
        for name in arguments.only or SETTINGS
        for some in COMPOSITIONS[SETTINGS[name].method]
    ]
    for row in run_jobs(jobs, arguments):
        weights = ", ".join(f"{w:.2f}" for w in row["family"]["view_weights"])
        scores = f"{row['validation']:.2f} | {row['accuracy']:.2f}"
        yield f"| {row['setting']} | {row['what']} | {scores} | {weights} |"


REMOVED: dict[str, dict[str, object]] = {
    "whitened view": {"views": ("unit", "root")},
    "root view": {"views": ("unit", "white")},
    "unit view": {"views": ("root", "white")},
    "root and unit view": {"views": ("white",)},
    "directions (plain features instead)": {"views": ("plain",)},
    "learned weight of a query (1 instead)": {"learn_query_weight": False},
    "scatter scale": {"scatter_scale": False},
    "propagation": {"neighbours": 0},
    "leave-one-out": {"leave_one_out": False},
    "bounded loss (−ln u instead)": {"loss": "nll"},
}


def ablation(arguments: argparse.Namespace) -> Iterator[str]:
    names = arguments.only or ["tiny-5", "dtd", "ucf101"]
    jobs = []
    for what, change in {"nothing": {}, **REMOVED}.items():
        of_config = {k: v for k, v in change.items() if k in ("loss", "learn_query_weight")}
        config = replace(FIVE, **of_config)
        of_law = {k: v for k, v in change.items() if k not in of_config}
        jobs += [Job(n, what, 0, replace(_law(SETTINGS[n].method), **of_law), config) for n in names]
    rows = {(row["what"], row["setting"]): row for row in run_jobs(jobs, arguments)}
    yield "| removed | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    full = [rows["nothing", n] for n in names]
    yield "| nothing | " + " | ".join(f"{row['accuracy']:.1f} ± {row['interval']:.1f}" for row in full) + " |"
    for what in REMOVED:
        cells = []
        for name in names:
            each, whole = (torch.tensor(rows[w, name]["per_task"], dtype=torch.float64) for w in (what, "nothing"))
            cells.append(f"{(each - whole).mean():+.1f} ± {interval95(each - whole):.1f}")
        yield f"| {what} | " + " | ".join(cells) + " |"


def transfer(arguments: argparse.Namespace) -> Iterator[str]:
    """K_eff is told to nobody; the diagonal is learned on the same data set's validation images."""
    for method in ("unem-plus", "unem-joint"):
        names = [
            n for n in arguments.only or SETTINGS if SETTINGS[n].method == method and n not in ("tiny-1", "tiny-20")
        ]
        if method == "unem-plus":
            names += [n for n in ("pets",) if not arguments.only]
        law = _law(method)
        yield f"\n`{method}`: learned on the row, tested on the column\n"
        yield "| | " + " | ".join(names) + " |"
        yield "|---|" + "---|" * len(names)
        for source in names:
            family = learned(source, arguments, law)
            yield f"| {source} | " + " | ".join(f"{evaluated(n, family, arguments).accuracy:.1f}" for n in names) + " |"


def shipped(arguments: argparse.Namespace) -> Iterator[str]:
    """The schedules that come with the library, on data sets of which they have seen some; K_eff is told to nobody."""
    for method in ("unem-plus", "unem-joint"):
        names = [n for n in SETTINGS if SETTINGS[n].method == method and n not in ("tiny-1", "tiny-20")]
        yield f"| `{method}`, accuracy % | " + " | ".join(names) + " |"
        yield "|---|" + "---|" * len(names)
        also = "zero-shot-unem-joint/*" if method == "unem-joint" else f"{method}/*"
        for preset in sorted({*unem.list_presets(f"{method}/*"), *unem.list_presets(also)}):
            results = (evaluated(name, unem.load_schedule(preset), arguments) for name in names)
            yield f"| `{preset}` | " + " | ".join(f"{r.accuracy:.1f} ± {r.interval:.1f}" for r in results) + " |"
        yield ""


NEAREST = {"tiny-5": "unem-plus/resnet18", "dtd": "unem-plus/clip-rn50"}
"""The library's schedule for a setting."""


def supports(arguments: argparse.Namespace) -> Iterator[str]:
    """From 1 to 9 samples of a class instead of 5 of each: the same number in all, on average."""
    yield "| setting | method | balanced | unbalanced |"
    yield "|---|---|---|---|"
    for name in arguments.only or ["tiny-5", "dtd"]:
        for method in (
            _with(unem.load_schedule(NEAREST[name])),
            unem.create_method("prototypes"),
            unem.create_method("simpleshot"),
        ):
            cells = [_on_support(name, method, uneven, arguments) for uneven in (False, True)]
            yield f"| {name} | `{method.name}` | " + " | ".join(cells) + " |"


def _on_support(name: str, method: Method, uneven: bool, arguments: argparse.Namespace) -> str:
    setting = SETTINGS[name]
    support, query = setting.pools(arguments.directory, "test")
    kind = unem.Protocol(shots=9 if uneven else 5)
    source = TaskSource(kind, support, query, seed=7)
    generator = torch.Generator().manual_seed(0)
    right = []
    for first in range(0, arguments.tasks, 50):
        task, labels = source.batch(first, 50)
        if uneven:
            keep = torch.randint(1, 10, (50, task.num_classes), generator=generator)
            there = torch.arange(9) < keep.unsqueeze(-1)
            task = unem.Task(
                task.support,
                task.support_labels.masked_fill(~there.flatten(1), -1),
                task.query,
                num_classes=task.num_classes,
            )
        right.append((method.predict(task).labels == labels).double().mean(1))
    per_task = 100 * torch.cat(right)
    return f"{per_task.mean():.1f} ± {interval95(per_task):.1f}"


def streams(arguments: argparse.Namespace) -> Iterator[str]:
    """Ten batches of the same five classes, with and without what went before."""
    yield "| setting, batch | " + " | ".join(f"batch {i + 1}" for i in range(10)) + " |"
    yield "|---|" + "---|" * 10
    for name in arguments.only or ["tiny-5"]:
        setting, method = SETTINGS[name], _with(unem.load_schedule(NEAREST[name]))
        support, query = setting.pools(arguments.directory, "test")
        for size in (10, 30):
            source = TaskSource(unem.Protocol(shots=setting.shots, queries=10 * size), support, query, seed=7)
            task, labels = source.batch(0, arguments.tasks)
            for memory in (0.0, 1.0):
                before, cells = None, []
                for batch in range(10):
                    part = slice(batch * size, (batch + 1) * size)
                    prediction, left = method.predict_after(task.of_queries(part), before)
                    before = left.plus(before) if memory else None
                    cells.append(f"{100 * (prediction.labels == labels[:, part]).double().mean():.1f}")
                yield (
                    f"| {name}, {size} queries, {'with' if memory else 'without'} memory | " + " | ".join(cells) + " |"
                )


def cost(arguments: argparse.Namespace) -> Iterator[str]:
    """Against unem-gaussian at the same depth, in turns, the quickest of each."""
    setting = SETTINGS["tiny-5"]
    images, _ = setting.pools(arguments.directory, "val")
    began = time.perf_counter()
    schedule = unem.train(images, unem.Gaussian(), unem.Protocol(), TrainingConfig.default(unem.Gaussian()))
    gaussian_seconds = time.perf_counter() - began
    fixed = learned("tiny-5", arguments, config=FamilyConfig.fixed(5))
    anything = learned("tiny-5", arguments)
    methods = {
        "unem-gaussian": unem.create_method("unem-gaussian", schedule=schedule),
        "unem-plus, learned for five classes": unem.create_method("unem-plus", schedule=fixed),
        "unem-plus, K_eff told": unem.create_method("unem-plus", schedule=anything, effective_classes=5),
        "unem-plus, K_eff unknown": unem.create_method("unem-plus", schedule=anything),
    }
    test, _ = setting.pools(arguments.directory, "test")
    task, _ = TaskSource(unem.Protocol(), test, seed=7).batch(0, 200)
    best = dict.fromkeys(methods, float("inf"))
    for _ in range(8):
        for name, method in methods.items():
            began = time.perf_counter()
            method.predict(task)
            best[name] = min(best[name], (time.perf_counter() - began) / 200)
    plus, both = fixed.provenance["seconds"], anything.provenance["seconds"]
    seconds = dict(zip(methods, (gaussian_seconds, plus, both, both), strict=True))
    yield "| method | a task, ms | ratio | learning, s | ratio |"
    yield "|---|---|---|---|---|"
    for name, took in best.items():
        ratios = took / best["unem-gaussian"], seconds[name] / gaussian_seconds
        yield f"| {name} | {1000 * took:.2f} | {ratios[0]:.1f} | {seconds[name]:.0f} | {ratios[1]:.1f} |"


ANY_NUMBER_OF_CLASSES = {"steps": 2200, "shares": (1.0, 0.5, 0.25, 0.12), "gate_shares": (1.0, 0.6, 0.3, 0.15, 0.1)}
"""Also for a handful of classes; learned on Tiny-ImageNet this way, a schedule travels worse."""
SHIPPED: dict[str, tuple[str, list[str], dict[str, object]]] = {
    "unem-plus/resnet18": ("unem-plus", ["tiny-5"], {}),
    "unem-plus/clip-rn50": ("unem-plus", ["dtd"], ANY_NUMBER_OF_CLASSES),
    "unem-joint/clip": ("unem-joint", ["caltech", "pets"], {}),
    "zero-shot-unem-joint/clip": ("zero-shot-unem-joint", ["caltech", "pets"], {}),
}


def shipped_config(**changes: object) -> FamilyConfig:
    """For any number of shots."""
    ks, shots = (1, 2, 3, 5, 10, 20), (1, 4, 12)
    config = FamilyConfig(steps=900, effective_classes=ks, shots=shots, shares=(1.0,), gate_shares=(1.0, 0.6, 0.3))
    return replace(config, **changes)


def ship(arguments: argparse.Namespace) -> Iterator[str]:
    """For any number of shots, from all data sets of a backbone family."""
    for preset, (method, names, changes) in SHIPPED.items():
        if arguments.only and preset not in arguments.only:
            continue
        pools = [SETTINGS[n].pools(arguments.directory, "val") for n in names]
        began = time.perf_counter()
        family = unem.train(
            [p[0] for p in pools],
            _law(method),
            query=[p[1] or p[0] for p in pools],
            config=shipped_config(**changes),
        )
        target = PRESETS / f"{preset.replace('/', '--')}.json"
        family.save(target)
        yield f"{preset}: {time.perf_counter() - began:.0f} s, {target.name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {f.__name__: f for f in (accuracy, views, ablation, transfer, shipped, supports, streams, cost, ship)}
    parser.add_argument("what", choices=commands)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    for line in commands[arguments.what](arguments):
        print(line, flush=True)


if __name__ == "__main__":
    main()
