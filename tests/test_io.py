"""Files are written whole or not at all, also where the disk is full."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file

from unem import FeatureSet, InputError
from unem._io import write_aside

PREPARED = """
    import sys
    import numpy as np, torch
    from unem import FeatureSet, InputError
    from unem.inference import FeatureCache
    from unem.vision.backbones import create
    from unem.vision.extraction import extract
    from unem.vision.images import ImageList, ImageTensors
    folder = sys.argv[1]
"""


def test_an_error_of_safetensors_is_a_sentence(tmp_path):
    with (
        pytest.raises(InputError, match="nothing was left behind"),
        write_aside(tmp_path / "f") as aside,
    ):
        save_file({"x": torch.zeros(1)}, aside.parent / "no folder" / "f")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "write",
    [
        "FeatureSet(torch.zeros(100, 100), torch.arange(100) % 3).save(folder + '/f.safetensors')",
        "ImageTensors(torch.zeros(9, 3, 64, 64, dtype=torch.uint8), torch.arange(9)).save(folder + '/f.safetensors')",
        "FeatureCache(folder, create('efficientnet-lite0')).add(np.zeros(9, 'V16'), torch.zeros(9, 1280))",
        "extract(ImageList.from_folder(sys.argv[2]), create('efficientnet-lite0'), work_dir=folder)",
    ],
    ids=["features", "pixels", "cache", "extraction"],
)
def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path, write):
    """A limit on the size of files stands in for the disk: the same errors, without the rights to mount one."""
    from PIL import Image

    (tmp_path / "images").mkdir()
    for i in range(3):
        Image.new("RGB", (32, 32), (80 * i, 0, 0)).save(tmp_path / "images" / f"{i}.png")
    code = textwrap.dedent(PREPARED) + f"try:\n    {write}\nexcept InputError as error:\n    print(error)\n"
    command = [sys.executable, "-c", code, str(tmp_path / "out"), str(tmp_path / "images")]
    (tmp_path / "out").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=_small_disk, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot write" in done.stdout
    assert "nothing was left behind" in done.stdout
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file()]


def _small_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))


def _write_half(path):
    with write_aside(path) as aside:
        aside.write_bytes(b"half")
        raise OSError(28, "No space left on device")


def test_whole_files_replace_earlier_ones_only(tmp_path):
    path = tmp_path / "f.safetensors"
    FeatureSet(torch.eye(3), [0, 1, 2]).save(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="nothing was left behind"):
        _write_half(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["f.safetensors"]
