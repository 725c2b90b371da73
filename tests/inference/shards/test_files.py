"""Files of features, read some rows at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from unem.errors import InputError
from unem.inference.shards import feature_files, files


def test_blocks_are_all_rows_in_their_order(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "ROWS", 4)
    table = torch.arange(30.0).view(10, 3)
    np.save(tmp_path / "a.npy", table.numpy())
    save_file({"features": table}, tmp_path / "b.safetensors")
    np.save(tmp_path / "empty.npy", np.zeros((0, 3), np.float32))
    found = feature_files(tmp_path)
    assert [(f.path.name, f.rows, f.dim) for f in found] == [("a.npy", 10, 3), ("b.safetensors", 10, 3)]
    for file in found:
        starts, blocks = zip(*file.blocks(files.Reading(torch.float64)), strict=True)
        assert starts == (0, 4, 8)
        assert torch.equal(torch.cat(blocks), table.double())
    assert found[0].names_of(3, 5) == ["a.npy#3", "a.npy#4"]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda p: np.save(p / "a.npy", np.zeros(3)), "expected .row, feature., got shape"),
        (lambda p: (p / "a.npy").write_text("no array"), "'a.npy' is not a file of features"),
        (lambda p: (p / "a.safetensors").write_text("nothing"), "'a.safetensors' is not a file of features"),
        (lambda p: save_file({"other": torch.ones(2, 2)}, p / "a.safetensors"), "is not a file of features"),
        (lambda p: [np.save(p / f"{d}.npy", np.zeros((2, d))) for d in (2, 3)], "'3.npy' has rows of 3 features"),
        (lambda p: (p / "a.txt").write_text(""), "has no rows of features"),
    ],
)
def test_what_cannot_be_used(tmp_path, write, message):
    write(tmp_path)
    with pytest.raises(InputError, match=message):
        feature_files(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"query: .* does not exist"):
        feature_files(tmp_path / "none")
