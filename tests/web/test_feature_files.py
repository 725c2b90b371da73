"""Feature files that visitors send."""

from __future__ import annotations

import io
import resource
import tempfile
import zipfile

import numpy as np
import pytest

from helpers.app_data import SMALL, arrays
from unem.errors import InputError
from unem.web.feature_files import read_features
from unem.web.limits import MB
from unem.web.uploads import Received


def read(name, content):
    return read_features(Received(name, content), SMALL)


def test_feature_files_are_read_and_nothing_stays(left_behind):
    content = arrays(features=np.eye(4, dtype=np.float32), labels=np.arange(4) % 2)
    assert len(read("my.npz", content)) == 4


def lying(shape):
    """A table that says it is larger than it is."""
    table = io.BytesIO()
    np.lib.format.write_array_header_1_0(table, {"descr": "<f4", "fortran_order": False, "shape": shape})
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("features.npy", table.getvalue() + bytes(64))
        archive.writestr("labels.npy", b"")
    return out.getvalue()


def twice():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for _ in range(2):
            archive.writestr("labels.npy", b"x")
    return out.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda: arrays(features=np.zeros(60 * MB // 4, np.float32), labels=np.zeros(1, int)), "would unpack to 60 MB"),
        (lambda: arrays(features=np.array([object()]), labels=np.zeros(1, int)), "without pickled objects"),
        (lambda: arrays(labels=np.zeros(3, int)), "has no 'features'"),
        (lambda: b"no archive", "not a readable zip"),
        (lambda: arrays(features=np.eye(2), labels=np.array([0, 20_000_000])), "has a label of 20000000"),
        (lambda: arrays(features=np.zeros((5001, 2)), labels=np.zeros(5001, int)), "5001 rows"),
        (lambda: arrays(features=np.zeros((2, 5000)), labels=np.zeros(2, int)), "5000 features a row"),
        (lambda: arrays(features=np.eye(600), labels=np.arange(600)), "600 classes"),
        (lambda: arrays(features=np.eye(2), labels=np.arange(2), text_features=np.zeros((20_000, 2))), "20000 rows"),
        (lambda: lying((10**6, 10**6)), "does not hold the"),
        (lambda: lying((1000, 1000)), "does not hold the"),
        (twice, "two tables of one name"),
    ],
)
def test_hostile_feature_files_are_refused_with_a_sentence(content, sentence, left_behind):
    made = content()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=sentence) as caught:
        read("my.npz", made)
    assert tempfile.gettempdir() not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kB


def test_one_large_label_in_the_native_format(tmp_path, left_behind):
    import torch
    from safetensors.torch import save_file

    tensors = {"features": torch.eye(2), "labels": torch.tensor([0, 20_000_000])}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "unem-features/1", "unem": "{}"})
    with pytest.raises(InputError, match="has a label of 20000000"):
        read("x.safetensors", (tmp_path / "x.safetensors").read_bytes())


def test_safetensors_of_another_kind_are_refused(left_behind):
    with pytest.raises(InputError, match="not a readable safetensors file"):
        read("x.safetensors", b"\xff" * 100)
