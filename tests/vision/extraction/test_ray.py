"""The same bytes on a Ray cluster, whatever dies on the way."""

from __future__ import annotations

import os
import signal

import pytest
import torch

ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'unem[ray]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install 'unem[images]'")

from ray.cluster_utils import Cluster  # noqa: E402

from helpers.image_data import write_class_folders, write_clip  # noqa: E402
from helpers.ray_processes import descendants  # noqa: E402
from unem.errors import InputError  # noqa: E402
from unem.vision.backbones import create  # noqa: E402
from unem.vision.datasets import images_of  # noqa: E402
from unem.vision.extraction import extract  # noqa: E402
from unem.vision.extraction.ray import RayShards  # noqa: E402

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


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    write_clip(folder)
    return create(str(folder))


def shards_in(folder):
    return {f.name: f.read_bytes() for f in folder.glob("*.safetensors")}


def test_shards_are_those_of_one_machine_though_a_worker_dies(cluster, clip, tmp_path):
    photos = write_class_folders(tmp_path / "photos", each=16, broken=2)
    (photos / "elm" / "dead.jpg").symlink_to(photos / "nowhere")
    images, killed = images_of(photos), []

    def disturb(progress):
        if progress.done >= 8 and not killed:
            killed.extend(descendants(b"ray::_Worker")[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    here = extract(images, clip, shard_size=4, work_dir=tmp_path / "here")
    there = extract(images, clip, shard_size=4, work_dir=tmp_path / "there", engine=RayShards(clip), progress=disturb)
    assert killed
    assert torch.equal(there.features, here.features)
    assert there.failures == here.failures
    assert shards_in(tmp_path / "there") == shards_in(tmp_path / "here")
    again = extract(images, clip, shard_size=4, work_dir=tmp_path / "here", engine=RayShards(clip))
    assert again.progress.found == len(images)  # either goes on where the other stopped


def test_a_backbone_that_nodes_do_not_have(cluster, clip, tmp_path):
    photos = write_class_folders(tmp_path / "photos", each=1)
    engine = RayShards(clip)
    engine.backbone = "transformers:./nowhere"
    with pytest.raises(InputError, match="nowhere"):
        extract(images_of(photos), clip, engine=engine)
