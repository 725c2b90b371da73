"""Feature files: read, written, and refused when they are not what they say."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers.feature_data import FEATURES, LABELS, same, sample
from helpers.shared import shared_files
from unem import FeatureSet, InputError
from unem.data import formats


@given(
    classes=st.integers(1, 5),
    images=st.integers(5, 20),
    text=st.booleans(),
    names=st.lists(st.text(max_size=8), min_size=5, max_size=5),
    splits=st.lists(st.sampled_from(["train", "val", "test", "ünï ✓"]), min_size=20, max_size=20),
)
def test_native_round_trip(tmp_path_factory, classes, images, text, names, splits):
    features = FeatureSet(
        torch.randn(images, 3),
        torch.arange(images) % classes,
        split=splits[:images],
        class_names=names[:classes],
        text_features=torch.randn(classes, 3) if text else None,
        metadata={"dataset": "x", "n": 3},
    )
    path = tmp_path_factory.mktemp("f") / "f.safetensors"
    features.save(path)
    again = FeatureSet.load(path)
    same(features, again)
    assert again.metadata == features.metadata
    assert again.digest == features.digest
    assert [p.name for p in path.parent.iterdir()] == ["f.safetensors"]


def test_a_split_survives_a_file(tmp_path):
    part = FeatureSet(**sample()).split("val").similarities()
    part.save(tmp_path / "p.safetensors")
    again = FeatureSet.load(tmp_path / "p.safetensors")
    assert again.kind == "similarities"
    same(part, again)


def test_npz_npy_and_torch_files(tmp_path):
    expected = FeatureSet(**sample())
    np.savez(tmp_path / "f.npz", **sample(features=FEATURES.astype(np.float16)))
    loaded = FeatureSet.load(tmp_path / "f.npz")
    assert loaded.features.dtype == torch.float32
    assert torch.allclose(loaded.features, expected.features, atol=1e-2)
    assert loaded.splits == ("test", "train", "val")

    np.save(tmp_path / "x.npy", FEATURES)
    np.save(tmp_path / "x_labels.npy", LABELS)
    np.save(tmp_path / "y.npy", LABELS)
    assert torch.equal(FeatureSet.load(tmp_path / "x.npy").labels, expected.labels)
    assert torch.equal(FeatureSet.load(tmp_path / "x.npy", tmp_path / "y.npy").features, expected.features)

    torch.save({"features": torch.as_tensor(FEATURES), "labels": torch.as_tensor(LABELS)}, tmp_path / "f.pt")
    assert torch.equal(FeatureSet.load(tmp_path / "f.pt").features, expected.features)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def write_pickled_npz(path):
    np.savez(path, features=np.array([Bomb()], dtype=object), labels=LABELS)


def write_pickled_npy(path):
    np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)
    np.save(path.with_name(f"{path.stem}_labels.npy"), LABELS)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.npz", write_pickled_npz, "not a readable .npz without pickled objects"),
        ("a.npy", write_pickled_npy, "not a readable .npy without pickled objects"),
        ("a.pt", lambda p: torch.save({"features": Bomb()}, p), "not a torch file of plain tensors"),
        ("b.pt", lambda p: p.write_bytes(pickle.dumps(Bomb())), "not a torch file of plain tensors"),
        ("c.pt", lambda p: torch.save(torch.eye(3), p), "holds a Tensor, expected a dict"),
        ("d.pt", lambda p: torch.save({"features": torch.eye(3)}, p), "has no 'labels', only features"),
        ("a.safetensors", lambda p: p.write_bytes(b"not at all"), "not a readable safetensors file"),
        ("b.npz", lambda p: p.write_bytes(b"PK\x03\x04 broken"), "a damaged .npz|not a readable"),
        ("c.npz", lambda p: np.savez(p, x=FEATURES), "has no 'features'"),
        ("d.npz", lambda p: p.write_text("<html>not found</html>"), "not a readable .npz"),
        ("b.npy", lambda p: np.save(p, FEATURES), "b_labels.npy' does not exist"),
        ("a.pkl", lambda p: p.write_bytes(b"x"), "has the ending '.pkl'; expected .safetensors"),
    ],
)
def test_files_that_are_not_what_they_say(tmp_path, monkeypatch, name, write, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name)
    with pytest.raises(InputError, match=message):
        FeatureSet.load(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


def test_a_truncated_file_is_refused(tmp_path):
    for name in ("f.safetensors", "f.npz"):
        FeatureSet(**sample()).save(tmp_path / name) if name.endswith("tensors") else np.savez(
            tmp_path / name, **sample()
        )
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(InputError, match=r"not a readable|a damaged"):
            FeatureSet.load(tmp_path / name)


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"features": torch.eye(3)}, tmp_path / "f.safetensors")
    with pytest.raises(InputError, match="not of 'unem-features/1'"):
        FeatureSet.load(tmp_path / "f.safetensors")


def test_a_damaged_header_is_refused(tmp_path):
    from safetensors.torch import save_file

    tensors = {"features": torch.eye(3), "labels": torch.arange(3), "split": torch.zeros(3, dtype=torch.int32)}
    for number, header in enumerate((None, "no json", "{}", '{"splits": []}', '{"splits": ["a"], "colour": 1}')):
        path = tmp_path / f"{number}.safetensors"
        save_file(tensors, path, metadata={"format": "unem-features/1"} | ({} if header is None else {"unem": header}))
        with pytest.raises(InputError, match=r"damaged header|unknown entries"):
            FeatureSet.load(path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f.safetensors"
    FeatureSet(**sample()).save(path)
    before = path.read_bytes()

    def full_disk(*args, **kwargs):
        args[1].write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unem.data.formats.save_file", full_disk)
    with pytest.raises(InputError, match="No space left on device; nothing was left behind"):
        FeatureSet(FEATURES * 2, LABELS).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["f.safetensors"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("unem.data.formats.save_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FeatureSet(**sample()).save(tmp_path / "f.safetensors")
    assert not list(tmp_path.iterdir())


def test_native_files_have_their_own_ending(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.safetensors"):
        FeatureSet(**sample()).save(tmp_path / "f.npz")


@pytest.mark.skipif(not shared_files("features/*.npz"), reason="the measuring features are not here")
def test_measuring_features_load():
    for path in shared_files("features/*.npz"):
        features = FeatureSet.load(path)
        assert len(features) == len(features.labels)
        assert set(features.splits) <= {"train", "val", "test"}  # some are one pool
    assert isinstance(features, unem.FeatureSet)


def test_a_format_is_one_entry_of_the_table(tmp_path, monkeypatch):
    def read(file, labels):
        table = np.loadtxt(file, delimiter=",")
        return {"features": table[:, 1:], "labels": table[:, 0].astype(int)}

    def write(file, values):
        np.savetxt(file, np.column_stack([values["labels"], values["features"]]), delimiter=",")

    monkeypatch.setattr(formats, "FORMATS", {**formats.FORMATS, ".csv": formats.Format(read, write)})
    FeatureSet(**sample()).save(tmp_path / "f.csv")
    again = FeatureSet.load(tmp_path / "f.csv")
    torch.testing.assert_close(again.features.float(), torch.as_tensor(FEATURES))
    assert again.labels.tolist() == LABELS.tolist()
    (tmp_path / "f.txt").touch()
    with pytest.raises(InputError, match=r"expected \.safetensors, \.npz, \.npy, \.pt, \.pth or \.csv"):
        FeatureSet.load(tmp_path / "f.txt")
    with pytest.raises(InputError, match=r"ends in \.safetensors or \.csv"):
        FeatureSet(**sample()).save(tmp_path / "f.txt")


@pytest.mark.parametrize("ending", ["safetensors", "npz", "npy", "pt"])
def test_a_flipped_bit_is_a_sentence_or_a_feature_set(tmp_path, ending):
    """Anywhere in the file: never another exception, and never much memory (labels become huge numbers)."""
    file = tmp_path / f"f.{ending}"
    features, labels = np.eye(6, 3, dtype=np.float32), np.arange(6) % 3
    if ending == "npy":
        np.save(file, features)
        np.save(tmp_path / "f_labels.npy", labels)
    elif ending == "npz":
        np.savez(file, features=features, labels=labels)
    elif ending == "pt":
        torch.save({"features": torch.tensor(features), "labels": torch.tensor(labels)}, file)
    else:
        FeatureSet(features, labels).save(file)
    whole = file.read_bytes()
    refused = 0
    for place in range(0, len(whole), 1 if ending == "npy" else 5):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        try:
            FeatureSet.load(file)
        except InputError:
            refused += 1
    assert refused > 0
