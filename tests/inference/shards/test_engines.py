"""The same tables on a Ray cluster, though a worker dies."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'unem[ray]'")

from helpers.command_line import invoke  # noqa: E402
from helpers.image_data import write_class_folders, write_clip  # noqa: E402
from helpers.ray_processes import descendants  # noqa: E402
from unem import FeatureSet  # noqa: E402
from unem.errors import InputError  # noqa: E402
from unem.inference.shards import RayMap, feature_files, label_shards  # noqa: E402

NAMES = ["ash", "birch", "elm"]


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_WORKER_NICENESS"] = "0"  # else workers wait for whatever else the machine does
    ray.init(
        num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=100 << 20
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def few():
    labels = torch.arange(12) % 3
    torch.manual_seed(0)
    return FeatureSet(3 * torch.eye(3, 8)[labels] + torch.randn(12, 8), labels, class_names=NAMES)


@pytest.fixture(scope="module")
def query(tmp_path_factory):
    folder = tmp_path_factory.mktemp("query")
    rng = np.random.default_rng(0)
    for number in range(12):
        rows = 3 * np.eye(3, 8)[rng.integers(0, 2, 300)] + rng.normal(size=(300, 8))
        np.save(folder / f"{number:02d}.npy", rows.astype(np.float32))
    return folder


def tables(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_tables_are_those_of_one_process_though_a_worker_dies(cluster, few, query, tmp_path):
    files, killed = feature_files(query), []

    def disturb(stage, done, total):
        if stage == "counts" and 2 <= done < total and not killed:
            killed.extend(descendants(b"ray::_alone")[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    known = few.features, few.labels
    here = label_shards(*known, files, NAMES, tmp_path / "here.csv")
    there = label_shards(*known, files, NAMES, tmp_path / "there.csv", engine=RayMap(), progress=disturb)
    assert killed
    assert there.counts == here.counts
    assert tables(there.folder) == tables(here.folder)


def test_what_a_worker_cannot_use_is_a_sentence(cluster, few, query, tmp_path):
    np.save(tmp_path / "x.npy", np.full((2500, 8), np.nan, np.float32))
    broken = [*feature_files(query), *feature_files(tmp_path / "x.npy")]
    with pytest.raises(InputError, match=r"x.npy"):
        label_shards(few.features, few.labels, broken, NAMES, tmp_path / "out.csv", engine=RayMap())


def test_the_command_on_features(cluster, few, query, tmp_path):
    few.save(tmp_path / "few.safetensors")
    command = ["predict", "--support", tmp_path / "few.safetensors", "--query", query]
    here = invoke(*command, "-o", tmp_path / "here.csv")
    assert here.exit_code == 0, here.output
    assert "12 parts, 3,600 rows" in here.output
    there = invoke(*command, "-o", tmp_path / "there.csv", "--engine", "ray", "--quiet")
    assert there.exit_code == 0, there.output
    assert tables(tmp_path / "there.csv") == tables(tmp_path / "here.csv")
    unused = invoke(*command, "-o", tmp_path / "no.csv", "--copy-to", tmp_path / "copies", "--prompt", "a {}")
    assert unused.exit_code == 2
    assert "--copy-to, --prompt: do not go with files of features" in unused.output


def test_the_command_on_images(cluster, tmp_path):
    pytest.importorskip("transformers")
    write_clip(tmp_path / "clip")
    photos = write_class_folders(tmp_path / "photos", each=6, broken=1)
    command = ["predict", "--support", tmp_path / "few", "--query", photos, "--backbone", tmp_path / "clip"]
    write_class_folders(tmp_path / "few", each=3)
    there = invoke(*command, "-o", tmp_path / "there.csv", "--engine", "ray")
    assert there.exit_code == 0, there.output
    assert "could not be read" in there.output
    here = invoke(*command, "-o", tmp_path / "here.csv", "--no-cache", "--quiet")
    assert here.exit_code == 0, here.output
    part = (tmp_path / "there.csv" / "part-000000.csv").read_text().splitlines()
    rows = (tmp_path / "here.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in part] == [row.split(",")[:2] for row in rows]
