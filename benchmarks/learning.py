"""How long it takes to learn a family of schedules, its gate included; before a change and after it, in one run.

    python benchmarks/learning.py DIR --before OLD_SRC [--device cuda] [--only shipped,default,fixed] [-o FILE.json]

DIR holds the feature files, OLD_SRC another version's `src` folder (`git archive COMMIT src | tar x`); without it, this
version alone. Each learning is a process of its own, one thread on a CPU, and the versions take turns. Both families
then classify the same 1000 test tasks with this version, K_eff not told: accuracies are paired. On a CPU the seconds
are of processor time, which others on the machine lengthen less than the clock's.

`--eager` switches recorded steps (CUDA graphs) off; where a recording fails the run says so and goes on without.

    shipped   as a schedule that comes with the library: resnet18 on Tiny-ImageNet, 1, 4 and 12 shots, 900 steps, gate
    default   `FamilyConfig()` for the same images, 5 shots, 800 steps, gate
    fixed     five effective classes and 75 queries alone: CLIP RN50 on DTD, 4 shots, 300 steps, no gate
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch

import unem
from plus import SETTINGS, shipped_config
from unem.evaluation import Evaluation, interval95
from unem.learning import FamilyConfig, ScheduleFamily

CASES = {
    "shipped": ("tiny-5", shipped_config()),
    "default": ("tiny-5", FamilyConfig(shots=(5,))),
    "fixed": ("dtd", FamilyConfig.fixed(5, shots=(4,))),
}


def main() -> None:
    arguments = _arguments()
    if arguments.learn:
        learn(arguments)
        return
    print(f"torch {torch.__version__}, {_device_name(arguments.device)}", flush=True)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in arguments.only:
            rows.append(compare(case, arguments, Path(folder)))
            if arguments.output:
                arguments.output.write_text(json.dumps(rows, indent=1))
    print("\n| learned | before, s | after, s | ratio | accuracy % | after − before, paired |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(_line(row))


def compare(case: str, arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Each version's seconds (the quickest of several) and accuracy on the same test tasks."""
    versions = {"before": arguments.before, "after": Path(unem.__file__).parents[1]}
    runs: dict[str, list[dict[str, object]]] = {"before": [], "after": []}
    for _ in range(arguments.repeats):
        for version, source in versions.items():
            if source is not None:
                runs[version].append(_learned(case, version, source, arguments, folder))
    row: dict[str, object] = {"case": case, "device": _device_name(arguments.device), "torch": torch.__version__}
    tested: dict[str, Evaluation] = {}
    for version, some in runs.items():
        if some:
            row[version] = min(some, key=lambda run: run["seconds"])  # type: ignore[arg-type, return-value]
            tested[version] = evaluated(case, ScheduleFamily.load(folder / f"{case}-{version}.json"), arguments)
            row[f"{version}_accuracy"] = tested[version].accuracy
    if len(tested) == 2:
        gain = tested["after"].per_task - tested["before"].per_task
        row["gain"], row["interval"] = float(gain.mean()), float(interval95(gain))
    print(_line(row), flush=True)
    return row


def _learned(case: str, version: str, source: Path, arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """What a process that learns with some version says of it."""
    command = [sys.executable, __file__, str(arguments.directory), "--device", arguments.device, "--learn", case]
    command += ["-o", str(folder / f"{case}-{version}.json")]
    modes = [["--eager"]] if arguments.eager or version == "before" else [[], ["--eager"]]
    others = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and not (Path(p) / "unem").exists()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), *others])}
    for mode in modes:
        done = subprocess.run(command + mode, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            said: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
            print(f"{case}, {version}: {said}", flush=True)
            return said
        print(f"{case}, {version} {' '.join(mode)}: FAILED (exit {done.returncode}), see above", flush=True)
    sys.exit(1)


def learn(arguments: argparse.Namespace) -> None:
    """In a process of its own: learn, save, say how long it took and where the time went."""
    torch.set_num_threads(1 if arguments.device == "cpu" else torch.get_num_threads())
    if arguments.eager:
        _switch_recording_off()
    if arguments.device != "cpu":
        torch.ones(8, 8, device=arguments.device) @ torch.ones(8, 8, device=arguments.device)  # wakes it up
        torch.cuda.synchronize()
    name, config = CASES[arguments.learn]
    support, query = SETTINGS[name].pools(arguments.directory, "val")
    clock = time.process_time if arguments.device == "cpu" else time.perf_counter

    def now() -> float:
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        return clock()

    def note(news: object) -> None:
        if (stage := "steps" if news.stage == "schedules" else "gate") != marks[-1][0]:  # type: ignore[attr-defined]
            marks.append((stage, now()))

    began, marks = time.perf_counter(), [("prepare", now())]
    family = unem.train(
        support, unem.Directions(), query=query, config=config, seed=0, device=arguments.device, progress=note
    )
    marks.append(("", now()))
    family.save(arguments.output)
    stages = {stage: round(end - at, 2) for (stage, at), (_, end) in pairwise(marks)}
    said = {
        "seconds": round(marks[-1][1] - marks[0][1], 2),
        **stages,
        "clock": round(time.perf_counter() - began, 2),
        "from": Path(unem.__file__).parts[-4:-2],
    }
    if arguments.device != "cpu":
        said["peak_gpu_mb"] = torch.cuda.max_memory_allocated() >> 20
    print(json.dumps(said))


def _switch_recording_off() -> None:
    try:
        from unem.learning import recorded
    except ImportError:  # an older version
        return
    recorded.EAGER = sys.maxsize


def evaluated(case: str, family: ScheduleFamily, arguments: argparse.Namespace) -> Evaluation:
    name = CASES[case][0]
    support, query = SETTINGS[name].pools(arguments.directory, "test")
    protocol = unem.Protocol(shots=SETTINGS[name].shots)
    method = unem.create_method("unem-plus", schedule=family)
    return unem.evaluate(method, support, protocol, query=query, tasks=arguments.tasks, seed=7, device=arguments.device)


def _line(row: dict[str, object]) -> str:
    seconds = [row[v]["seconds"] if v in row else None for v in ("before", "after")]  # type: ignore[index]
    cells = ["–" if s is None else f"{s:.1f}" for s in seconds]
    cells.append(f"{seconds[0] / seconds[1]:.1f}" if None not in seconds else "–")  # type: ignore[operator]
    cells.append(f"{row['after_accuracy']:.2f}")
    cells.append(f"{row['gain']:+.2f} ± {row['interval']:.2f}" if "gain" in row else "–")
    return f"| {row['case']} | " + " | ".join(cells) + " |"


def _device_name(device: str) -> str:
    return "one CPU core" if device == "cpu" else torch.cuda.get_device_name(device)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--learn", choices=list(CASES), help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
