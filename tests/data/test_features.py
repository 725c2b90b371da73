"""Feature sets: checked, split, cut to classes, turned into similarities."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.feature_data import FEATURES, LABELS, SPLIT, sample
from unem import FeatureSet, InputError


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
        ({"class_ids": list("abcd")}, "class_ids: expected 4 different numbers"),
        ({"class_ids": [0, 1, 2, float("inf")]}, "class_ids: expected 4 different numbers"),
        ({"class_ids": 7}, "class_ids: expected 4 different numbers"),
        ({"class_names": 7}, "class_names: expected one name for each class, got '7'"),
        ({"class_names": "abcd"}, "class_names: expected one name for each class"),
        ({"text_features": 7}, r"text_features: expected \[class, feature\]"),
        ({"metadata": "abc"}, "metadata: expected names and values, got str"),
        ({"features": torch.eye(12, 5).to_sparse()}, "features: expected a dense tensor"),
        ({"features": torch.eye(12, 5).to_sparse_csr()}, "features: expected a dense tensor"),
        ({"features": torch.empty(12, 5, device="meta")}, "features: .* without data"),
        ({"labels": torch.arange(12).to("meta")}, "labels: .* without data"),
        ({"kind": "pictures"}, "kind: expected 'embeddings' or 'similarities'"),
        ({"text_features": np.full((4, 5), np.inf)}, "text_features: .* NaN or infinite"),
    ],
)
def test_bad_content_is_named(changes, message):
    with pytest.raises(InputError, match=message):
        FeatureSet(**sample(**changes))


@pytest.mark.parametrize("label", [30_000_000, 2**40, 2**63 - 1])
def test_one_damaged_label_does_not_take_the_memory_of_millions_of_classes(label):
    with pytest.raises(
        InputError, match=f"labels: .* found {label} among 3 images; without class names at most 100000"
    ):
        FeatureSet(torch.eye(3), [0, 1, label])
    assert FeatureSet(torch.eye(3), [0, 1, 99_999]).num_classes == 100_000


def test_info():
    info = FeatureSet(**sample()).info()
    assert info["classes"] == 4
    assert info["splits"]["val"] == {"images": 4, "classes": 4, "images_per_class": [1, 1]}


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
