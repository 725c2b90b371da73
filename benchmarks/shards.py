"""Labelling features in shards, in this process and by two local workers of Ray: labels, memory, time, a lost worker.

    python benchmarks/shards.py FOLDER [--rows 1000000] [--features 512] [--classes 20] [--files 40] [--workers 2]

Synthetic features: classes of uneven sizes with a common covariance. Each size is labelled by both engines; in the last
Ray run a worker is killed in the middle of a pass. Memory is the largest resident set of each process, sampled ten
times a second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unem.inference.shards import LocalMap, RayMap, ShardedLabelling, feature_files, label_shards

Sample = tuple[torch.Tensor, torch.Tensor]


def make(folder: Path, rows: int, dim: int, classes: int, files: int) -> Sample:
    """Files of features, unless they are there, and a labelled sample of five of each class."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, dim)).astype(np.float32) * 0.35
    mix = np.eye(dim, dtype=np.float32) + rng.normal(size=(dim, dim)).astype(np.float32) * (0.5 / dim**0.5)
    share = rng.dirichlet(np.full(classes, 0.5))
    folder.mkdir(parents=True, exist_ok=True)
    for number, count in enumerate(np.full(files, rows // files) + (np.arange(files) < rows % files)):
        path = folder / f"features-{number:05d}.npy"
        if not path.exists():
            own = np.random.default_rng(1 + number)
            labels = own.choice(classes, count, p=share)
            np.save(path, centres[labels] + own.normal(size=(count, dim)).astype(np.float32) @ mix)
    known = np.repeat(np.arange(classes), 5)
    few = centres[known] + rng.normal(size=(len(known), dim)).astype(np.float32) @ mix
    return torch.from_numpy(few), torch.from_numpy(known)


class Watch(threading.Thread):
    """The largest resident set of processes, by what they are."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[str, float] = {}
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.1):
            for name, pid in [("driver", os.getpid()), *((f"worker {p}", p) for p in ray_workers())]:
                try:
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                except (OSError, ValueError):
                    continue
                self.peaks[name] = max(self.peaks.get(name, 0.0), pages * os.sysconf("SC_PAGE_SIZE") / 1e6)


def ray_workers() -> list[int]:
    """Processes of Ray that run the passes now."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes().startswith(b"ray::_alone"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def equal_rows(done: ShardedLabelling, other: ShardedLabelling) -> int:
    """Rows that say the same, to the last digit, of two tables; one part at a time."""
    same = 0
    for part in done.parts:
        texts = ((table.folder / part).read_text(encoding="utf-8").splitlines()[1:] for table in (done, other))
        same += sum(map(str.__eq__, *texts))
    return same


def run(few: Sample, folder: Path, files: int, engine: Any, name: str, kill: bool = False) -> tuple[dict, Any]:
    shards, killed = feature_files(folder)[:files], []
    watch, start, processor = Watch(), time.perf_counter(), time.process_time()

    def tell(stage: str, number: int, total: int) -> None:
        if kill and not killed and stage == "counts" and number >= total // 2 and (pids := ray_workers()):
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    watch.start()
    names = [f"class {k}" for k in range(int(few[1].max()) + 1)]
    done = label_shards(*few, shards, names, folder / f"{name}.csv", engine=engine, progress=tell)
    watch.ended.set()
    row = {"engine": name, "rows": done.rows, "seconds": round(time.perf_counter() - start, 1)}
    row |= {"driver_processor_seconds": round(time.process_time() - processor, 1), "passes": dict(done.seconds)}
    return row | {"peak_mb": {k: round(v) for k, v in watch.peaks.items()}, "killed": killed}, done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engines", default="local,ray")
    parser.add_argument("--shares", default="0.1,0.25,1", help="parts of the files, for how time grows with rows")
    options = parser.parse_args()
    few = make(options.folder, options.rows, options.features, options.classes, options.files)
    engines: dict[str, Any] = {name: LocalMap() if name == "local" else None for name in options.engines.split(",")}
    if "ray" in engines:
        engines["ray"] = RayMap(workers=options.workers)
    expected = None
    for share, (name, engine) in itertools.product(map(float, options.shares.split(",")), engines.items()):
        files = max(1, round(options.files * share))
        row, done = run(few, options.folder, files, engine, name, kill=name == "ray" and share == 1)
        if name == "local":
            expected = done
        elif expected is not None:
            row["equal_to_local"] = f"{equal_rows(done, expected)} of {done.rows}"
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
