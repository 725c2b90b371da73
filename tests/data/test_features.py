"""Feature files: read, written, split, and refused when they are not what they say."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers.shared import shared_files
from unem import FeatureSet, InputError
from unem.data.digits import digits

FEATURES = np.random.default_rng(0).normal(size=(12, 5)).astype(np.float32)
LABELS = np.arange(12) % 4
SPLIT = np.array(["train"] * 4 + ["val"] * 4 + ["test"] * 4)


def sample(**changes):
    values = {
        "features": FEATURES,
        "labels": LABELS,
        "split": SPLIT,
        "class_names": ["a", "b", "c", "d"],
        "text_features": np.eye(4, 5, dtype=np.float32),
        "base_mean": FEATURES.mean(0),
    }
    return values | changes


def same(a, b):
    assert torch.equal(a.features, b.features)
    assert torch.equal(a.labels, b.labels)
    assert a.class_names == b.class_names
    assert a.splits == b.splits
    assert a.class_ids == b.class_ids
    assert a.kind == b.kind
    assert (a.split_names is None) == (b.split_names is None)
    assert a.split_names is None or (a.split_names == b.split_names).all()
    for name in ("text_features", "base_mean"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right)


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


def test_split_renumbers_the_classes_that_occur():
    features = FeatureSet(torch.eye(6), [0, 1, 2, 3, 2, 3], split=["val"] * 2 + ["test"] * 4, class_names=list("abcd"))
    test = features.split("test")
    assert test.labels.tolist() == [0, 1, 0, 1]
    assert test.class_names == ("c", "d")
    assert test.class_ids == (2, 3)
    assert len(features.split("val+test")) == 6
    with pytest.raises(InputError, match="has no split 'train', only test, val"):
        features.split("train")
    with pytest.raises(InputError, match="has no splits"):
        FeatureSet(torch.eye(2), [0, 1]).split("val")


def test_similarities_are_raw_cosines():
    features = FeatureSet(**sample())
    cosine = torch.nn.functional.cosine_similarity(
        features.features.unsqueeze(1), features.text_features.unsqueeze(0), dim=-1
    )
    torch.testing.assert_close(features.similarities().features, cosine)
    with pytest.raises(InputError, match="has no text_features"):
        FeatureSet(FEATURES, LABELS).similarities()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": np.where(FEATURES > 1, np.nan, FEATURES)}, "features: .* NaN or infinite"),
        ({"features": FEATURES[0]}, r"features: expected \[image, feature\]"),
        ({"features": FEATURES[:0], "labels": LABELS[:0]}, "at least one"),
        ({"features": np.array([["a"] * 5] * 12)}, "features: expected a numeric"),
        ({"labels": LABELS[:5]}, r"labels: expected one per image, \(12,\), got shape \(5,\)"),
        ({"labels": LABELS.astype(float)}, "labels: expected integer class indices"),
        ({"labels": LABELS - 1}, r"labels: expected values in 0 … 3 \(4 class names\), found -1"),
        ({"labels": LABELS + 1}, r"labels: expected values in 0 … 3 \(4 class names\), found 4"),
        ({"split": SPLIT[:3]}, "split: expected one name per image"),
        ({"text_features": np.eye(3, 5)}, r"text_features: expected shape \(4, 5\), got \(3, 5\)"),
        ({"base_mean": np.zeros(4)}, r"base_mean: expected shape \(5,\)"),
        ({"labels": np.array(list("abcd") * 3)}, r"labels: expected integers .*numpy\.unique"),
        ({"class_ids": [0, 1]}, "class_ids: expected 4 different numbers"),
        ({"class_ids": [0, 1, 1, 2]}, "class_ids: expected 4 different numbers"),
        ({"kind": "pictures"}, "kind: expected 'embeddings' or 'similarities'"),
        ({"text_features": np.full((4, 5), np.inf)}, "text_features: .* NaN or infinite"),
    ],
)
def test_bad_content_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        FeatureSet(**sample(**changes))


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


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "f.safetensors"
    FeatureSet(**sample()).save(path)
    before = path.read_bytes()

    def full_disk(*args, **kwargs):
        args[1].write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("unem.data.features.save_file", full_disk)
    with pytest.raises(InputError, match="No space left on device; nothing was left behind"):
        FeatureSet(FEATURES * 2, LABELS).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["f.safetensors"]


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("unem.data.features.save_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FeatureSet(**sample()).save(tmp_path / "f.safetensors")
    assert not list(tmp_path.iterdir())


def test_info():
    info = FeatureSet(**sample()).info()
    assert info["classes"] == 4
    assert info["splits"]["val"] == {"images": 4, "classes": 4, "images_per_class": [1, 1]}


def test_embedded_digits():
    features = digits()
    assert features.splits == ("test", "val")
    assert features.split("val").num_classes == 10
    hits = features.similarities().features.argmax(1) == features.labels
    assert hits.float().mean() > 0.5  # a printed digit does resemble a written one


@pytest.mark.skipif(not shared_files("features/*.npz"), reason="the measuring features are not here")
def test_measuring_features_load():
    for path in shared_files("features/*.npz"):
        features = FeatureSet.load(path)
        assert len(features) == len(features.labels)
        assert features.splits
    assert isinstance(features, unem.FeatureSet)


def test_a_damaged_header_is_refused(tmp_path):
    from safetensors.torch import save_file

    tensors = {"features": torch.eye(3), "labels": torch.arange(3), "split": torch.zeros(3, dtype=torch.int32)}
    for number, header in enumerate((None, "no json", "{}", '{"splits": []}', '{"splits": ["a"], "colour": 1}')):
        path = tmp_path / f"{number}.safetensors"
        save_file(tensors, path, metadata={"format": "unem-features/1"} | ({} if header is None else {"unem": header}))
        with pytest.raises(InputError, match=r"damaged header|unknown entries"):
            FeatureSet.load(path)


def test_similarities_keep_the_columns_of_the_classes_that_are_left():
    features = FeatureSet(**sample(split=np.array(["val"] * 2 + ["test"] * 10)))
    kept = FeatureSet(
        features.similarities().features,
        LABELS,
        split=features.split_names,
        kind="similarities",
        class_names=list("abcd"),
    )
    torch.testing.assert_close(kept.split("val").features, features.split("val").similarities().features)


def test_the_digest_covers_texts():
    assert FeatureSet(**sample()).digest != FeatureSet(**sample(text_features=-np.eye(4, 5))).digest


def test_texts_of_another_precision_are_taken():
    assert FeatureSet(**sample(text_features=np.eye(4, 5))).similarities().features.dtype == torch.float32


def test_native_files_have_their_own_ending(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.safetensors"):
        FeatureSet(**sample()).save(tmp_path / "f.npz")
