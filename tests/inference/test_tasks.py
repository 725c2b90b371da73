"""The one way from user data to a task."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import unem
from unem.inference import task_from
from unem.inference.tasks import check_needs
from unem.methods import method_info

NAMES = ["ash", "birch", "elm"]


def drawn(classes=3, shots=2, queries=5, features=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    labels = np.arange(classes).repeat(shots)
    return tuple(
        x.astype(dtype) if x.dtype.kind == "f" else x
        for x in (
            rng.normal(size=(len(labels), features)),
            labels,
            rng.normal(size=(queries, features)),
            rng.normal(size=(classes, features)),
        )
    )


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def as_list(x):
    return x.tolist()


def read_only(x):
    x = x.copy()
    x.setflags(write=False)
    return x


def reversed_twice(x):
    """The same rows behind negative strides."""
    return x[::-1].copy()[::-1]


KINDS = (np.asarray, torch.from_numpy, as_list, read_only, reversed_twice, np.asfortranarray)
SIZES = {
    "classes": st.integers(1, 5),
    "shots": st.integers(1, 3),
    "queries": st.integers(1, 7),
    "features": st.integers(1, 6),
    "seed": st.integers(0, 99),
}


@settings(max_examples=60)
@given(st.fixed_dictionaries(SIZES), st.lists(st.sampled_from(KINDS), min_size=4, max_size=4), st.booleans())
def test_any_kind_of_array_gives_the_same_three_tasks(sizes, kinds, single):
    """Against plain numpy: as they are, beside the texts, cosines with the texts."""
    support, labels, query, text = drawn(**sizes, dtype=np.float32 if single else np.float64)
    args = [kind(x) for kind, x in zip(kinds, (support, labels, query), strict=False)]
    words = kinds[3](text)
    close = {"atol": 1e-5, "rtol": 0}
    plain = task_from(*args, text=words)
    torch.testing.assert_close(plain.query[0].double(), torch.from_numpy(query).double(), **close)
    torch.testing.assert_close(plain.support[0].double(), torch.from_numpy(support).double(), **close)
    assert plain.support_labels[0].tolist() == labels.tolist()
    assert (plain.text, plain.num_classes, plain.single) == (None, sizes["classes"], True)
    beside = task_from(*args, text=words, inputs="image+text")
    np.testing.assert_allclose(beside.query[0].numpy(), unit(query), atol=1e-5)
    np.testing.assert_allclose(beside.support[0].numpy(), unit(support), atol=1e-5)
    np.testing.assert_allclose(beside.text.numpy(), unit(text), atol=1e-5)
    cosines = task_from(*args, text=words, inputs="similarities")
    np.testing.assert_allclose(cosines.query[0].numpy(), unit(query) @ unit(text).T, atol=1e-5)
    np.testing.assert_allclose(cosines.support[0].numpy(), unit(support) @ unit(text).T, atol=1e-5)


@settings(max_examples=30)
@given(st.fixed_dictionaries(SIZES), st.randoms(use_true_random=False))
def test_texts_by_name_come_in_the_order_of_the_classes(sizes, chance):
    support, labels, query, text = drawn(**sizes)
    names = [f"class {k}" for k in range(sizes["classes"])]
    shuffled = chance.sample(names, len(names))
    for kind in (np.asarray, torch.from_numpy, as_list):
        by_name = {name: kind(text[names.index(name)]) for name in shuffled}
        task = task_from(support, labels, query, class_names=names, text=by_name, inputs="image+text")
        np.testing.assert_allclose(task.text.numpy(), unit(text), atol=1e-6)


@settings(max_examples=30)
@given(st.fixed_dictionaries(SIZES))
def test_texts_stand_in_for_support(sizes):
    _, _, query, text = drawn(**sizes)
    task = task_from(None, None, query, text=text, inputs="image+text")
    assert task.num_classes == sizes["classes"]
    np.testing.assert_allclose(task.support[0].numpy(), unit(text), atol=1e-6)
    cosines = task_from(None, None, query, text=text, inputs="similarities")
    np.testing.assert_allclose(cosines.query[0].numpy(), unit(query) @ unit(text).T, atol=1e-6)


@pytest.mark.parametrize(("fitted", "later"), [(np.float32, np.float64), (np.float64, np.float32)])
def test_the_support_says_the_precision(fitted, later):
    support, labels, query, _ = drawn()
    task = task_from(support.astype(fitted), labels, query.astype(later))
    assert task.dtype == (torch.float32 if fitted == np.float32 else torch.float64)


def nan(x):
    x = x.copy()
    x[0, 0] = np.nan
    return x


GOOD = dict(zip(("support", "labels", "query", "text"), drawn(), strict=True))


@pytest.mark.parametrize("inputs", ["features", "image+text", "similarities"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"support": None}, "support: missing, though there are labels"),
        ({"labels": None}, "labels: missing, though there are support"),
        ({"support": None, "labels": None, "text": None}, "support, text: both are missing"),
        ({"labels": [0, 0, 1, 1, 2]}, r"labels: expected one for each of 6 rows of support, got shape \(5,\)"),
        ({"labels": [0, 0, 1, 1, 2, 3]}, "labels: expected 0 … 2, the classes' places, found 3"),
        ({"labels": [0, 0, 1, 1, 2, -1]}, "labels: expected 0 … 2, the classes' places, found -1"),
        ({"labels": [0, 0, 1, 1, 0, 1]}, r"labels: class 2 \('elm'\) has no labelled sample"),
        ({"labels": [0.0, 0, 1, 1, 2, 2]}, "labels: expected whole numbers, .* got float64"),
        ({"labels": ["a"] * 6}, "labels: expected whole numbers"),
        ({"support": np.zeros((0, 4)), "labels": []}, "support: it has no rows"),
        ({"support": np.zeros(6)}, r"support: expected \[sample, feature\], got shape \(6,\)"),
        ({"query": np.zeros((2, 3, 4))}, r"query: expected \[query, feature\], got shape \(2, 3, 4\)"),
        ({"query": np.zeros((2, 3))}, "query: expected 4 features of each sample, as the support has, got 3"),
        ({"query": np.zeros((0, 4))}, "query: no query samples"),
        ({"query": [[1.0, 2, 3, 4], [1.0]]}, "query: expected rows of numbers"),
        ({"query": np.array([["a", "b", "c", "d"]])}, "query: expected a numeric tensor or array"),
        ({"support": nan(GOOD["support"])}, "support: 1 of 24 values are NaN or infinite"),
        ({"query": nan(GOOD["query"])}, "query: 1 of 20 values are NaN or infinite"),
        ({"text": nan(GOOD["text"])}, "text: 1 of 12 values are NaN or infinite"),
        ({"text": np.zeros((2, 4))}, r"text: expected one embedding for each class, \(3, 4\), got shape \(2, 4\)"),
        ({"text": np.zeros((3, 5))}, r"text: expected one embedding for each class, \(3, 4\), got shape \(3, 5\)"),
        ({"text": np.zeros(4)}, r"text: expected \[class, feature\], got shape \(4,\)"),
        ({"text": {"ash": np.ones(4), "elm": np.ones(4)}}, "text: there is none for class 'birch'"),
        ({"inputs": "pixels"}, "inputs: expected one of features, similarities, image\\+text, got 'pixels'"),
    ],
)
def test_what_cannot_be_used_is_named(change, message, inputs):
    given = {**GOOD, "inputs": inputs, **change}
    with pytest.raises(unem.InputError, match=f"^{message}"):
        task_from(given.pop("support"), given.pop("labels"), given.pop("query"), class_names=NAMES, **given)


@pytest.mark.parametrize("inputs", ["image+text", "similarities"])
def test_texts_that_are_needed(inputs):
    with pytest.raises(unem.InputError, match=f"^text: missing; '{inputs}' are made with".replace("+", r"\+")):
        task_from(GOOD["support"], GOOD["labels"], GOOD["query"], inputs=inputs)
    with pytest.raises(unem.InputError, match=r"^support: missing; without labelled samples"):
        task_from(None, None, GOOD["query"], text=GOOD["text"])


def test_what_a_method_needs():
    check_needs(method_info("zero-shot"), support=False, text=True)
    check_needs(method_info("unem-plus"), support=True, text=False)
    with pytest.raises(unem.InputError, match="text: 'em-dirichlet' needs texts of the classes"):
        check_needs(method_info("em-dirichlet"), support=True, text=False)
    with pytest.raises(unem.InputError, match="method: 'unem-joint' needs labelled images"):
        check_needs(method_info("unem-joint"), support=False, text=True)
