"""The same rows on a Ray cluster of several nodes, whatever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import unem
from helpers.experiment_data import MIXED, Here, lasting, plan, start
from helpers.ray_processes import descendants
from unem.experiments import FeatureFolder, ResultsStore, execute, expand, read_spec

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'unem[ray]'")

from ray.cluster_utils import Cluster  # noqa: E402

from unem.evaluation import content_digest  # noqa: E402
from unem.experiments.engines.ray import RayEngine, packed, unpacked  # noqa: E402

NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core each, on this machine."""
    os.environ["RAY_WORKER_NICENESS"] = "0"  # else workers wait for whatever else the machine does
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.add_node(**NODE)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


MANY = (
    {"features": "toy__*", "methods": ["prototypes", "paddle"], "shots": [1, 2], "seed": list(range(8)), "tasks": 300},
)


def test_a_set_survives_the_object_store(folder):
    for name in ("toy__one", "toy__two"):
        features = FeatureFolder(folder).load(name)
        again = unpacked(packed(features))
        assert content_digest(again) == content_digest(features)
        assert again.name == features.name


def test_rows_are_those_of_one_machine(cluster, folder, tmp_path):
    cells = plan(folder, *MIXED).cells
    here, there = ResultsStore(tmp_path / "here"), ResultsStore(tmp_path / "there")
    execute(cells, here, Here(folder))
    with RayEngine(folder) as engine:
        done = execute(cells, there, engine)
        assert len(engine.sets) == 2  # each file once
    assert not done.failed
    assert lasting(there) == lasting(here)


def test_a_worker_killed_and_a_node_removed_lose_nothing(cluster, folder, tmp_path):
    cells = plan(folder, *MANY).cells
    here, there = ResultsStore(tmp_path / "here"), ResultsStore(tmp_path / "there")
    execute(cells, here, Here(folder))
    extra, killed, removed = cluster.add_node(**NODE), [], []

    def disturb(progress):
        if progress.done >= 8 and not killed:
            killed.extend(descendants(b"ray::_run_on_node")[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        if progress.done >= 20 and not removed:
            removed.append(cluster.remove_node(extra, allow_graceful=False))

    with RayEngine(folder) as engine:
        done = execute(cells, there, engine, disturb)
    assert killed
    assert removed
    assert not done.failed
    assert lasting(there) == lasting(here)


def test_a_driver_killed_and_started_again(cluster, folder, tmp_path):
    spec, results = tmp_path / "spec.toml", tmp_path / "results"
    spec.write_text(
        'tasks = 200\neffective_classes = 2\nqueries = 12\n[[cells]]\nfeatures = "toy__*"\n'
        'methods = ["prototypes", "paddle"]\nshots = [1, 2]\nseed = [0, 1, 2, 3, 4]\n'
    )
    command = ["sweep", spec, "--features", folder, "-o", results, "--engine", "ray", "--address", cluster.address]
    process = start(*command, "-q")
    until = time.time() + 120
    while len(list(results.glob("*.json"))) < 5 and time.time() < until and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    store = ResultsStore(results)
    kept = {name: store.path(name).stat().st_mtime_ns for name in store.names()}
    assert len(kept) >= 5
    assert store.damaged() == []
    again = start(*command)
    printed, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert f"{len(kept)} were there" in printed
    assert all(store.path(name).stat().st_mtime_ns == when for name, when in kept.items())
    here = ResultsStore(tmp_path / "here")
    execute(expand(read_spec(spec), FeatureFolder(folder)).cells, here, Here(folder))
    assert lasting(store) == lasting(here)


def test_what_cannot_be_done_is_a_sentence_not_the_end(cluster, folder, tmp_path):
    from dataclasses import replace

    good = plan(folder, {"features": "toy__one", "methods": "prototypes"}).cells[0]
    bad = replace(good, images=replace(good.images, support_split="nowhere"))
    with RayEngine(folder) as engine:
        done = execute([bad, good], ResultsStore(tmp_path), engine)
    assert list(done.failed) == [bad.name]
    assert "nowhere" in done.failed[bad.name]


def test_without_ray_a_hint(folder, tmp_path):
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from unem.experiments.engines.ray import RayEngine\n"
        f"RayEngine({str(folder)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "pip install '.[ray]'" in done.stderr
    assert unem.InputError.__name__ in done.stderr
