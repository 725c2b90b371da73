"""The scikit-learn estimator: its checks, both ways to use it, and what people hand in."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import unem
from unem import InputError, TransductiveClassifier
from unem.inference import decided, label_features

EXPECTED = {
    "check_methods_subset_invariance": "rows are classified jointly: one row is another question than many",
    "check_classifiers_classes": "it has a class called -1, which marks rows without a label here as in LabelSpreading",
}


@parametrize_with_checks(
    [
        unem.TransductiveClassifier(),
        unem.TransductiveClassifier(decision="balanced"),
        unem.TransductiveClassifier("unem-gaussian"),
    ],
    expected_failed_checks=lambda _: EXPECTED,
)
def test_what_scikit_learn_demands(estimator, check):
    if estimator.decision == "balanced" and check.func.__name__ == "check_classifiers_train":
        pytest.skip("a balanced label need not be the most probable class; whether it is here, depends on the data")
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(X))
    return X[order][:400], y[order][:400]


def few(y, labelled=40):
    """The first rows keep their label."""
    return np.where(np.arange(len(y)) < labelled, y, -1)


# -- the two ways ------------------------------------------------------------------------------------------------------


def test_unlabelled_rows_are_answered_by_fit(digits):
    X, y = digits
    model = unem.TransductiveClassifier().fit(X, few(y))
    assert (model.transduction_[:40] == y[:40]).all()
    assert (model.transduction_ == y).mean() > 0.75
    assert model.label_distributions_.shape == (400, 10)
    assert model.n_iter_ == getattr(model.schedule_, "layers", 1)
    assert unem.TransductiveClassifier("unem-plus").fit(X, few(y)).n_iter_ == 10
    np.testing.assert_allclose(model.label_distributions_.sum(1), 1)
    np.testing.assert_array_equal(model.label_distributions_[:40], np.eye(10)[y[:40]])


def test_both_ways_say_the_same_and_what_the_method_says(digits):
    X, y = digits
    fitted = unem.TransductiveClassifier().fit(X, few(y))
    later = unem.TransductiveClassifier().fit(X[:40], y[:40])
    np.testing.assert_array_equal(fitted.label_distributions_[40:], later.predict_proba(X[40:]))
    task = unem.Task(X[:40], y[:40], X[40:])
    direct = unem.choose(task).method.predict(task).probabilities
    np.testing.assert_allclose(later.predict_proba(X[40:]), direct.numpy(), atol=1e-12)
    assert later.score(X[40:], y[40:]) == (direct.argmax(-1).numpy() == y[40:]).mean()


def test_a_batch_is_classified_jointly(digits):
    X, y = digits
    model = unem.TransductiveClassifier().fit(X[:40], y[:40])
    jointly, alone = model.predict_proba(X[40:140]), model.predict_proba(X[40:41])
    assert abs(jointly[0] - alone[0]).max() > 1e-3
    np.testing.assert_allclose(model.predict_proba(X[40:140][::-1])[::-1], jointly, atol=1e-6)  # not their order


def test_fit_on_labelled_rows_alone_has_their_labels(digits):
    X, y = digits
    model = unem.TransductiveClassifier().fit(X[:40], y[:40])
    np.testing.assert_array_equal(model.transduction_, y[:40])


# -- what people hand in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [-1, "-1", None, float("nan"), pd.NA])
def test_words_as_labels_whatever_marks_the_others(missing):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"], dtype=object)[y]
    some = [name if i % 10 == 0 else missing for i, name in enumerate(names)]
    expected = unem.TransductiveClassifier().fit(X, np.where(np.arange(150) % 10 == 0, y, -1))
    for labels in (some, pd.Series(some), np.array(some, dtype=object)):
        model = unem.TransductiveClassifier().fit(X, labels)
        assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
        np.testing.assert_array_equal(model.label_distributions_, expected.label_distributions_)
        assert model.transduction_[0] == "setosa"


def test_numbers_with_nan_and_a_class_called_minus_one():
    X, y = load_iris(return_X_y=True)
    signs = np.where(y == 0, -1, 1)
    model = unem.TransductiveClassifier(unlabelled=None).fit(X[::5], signs[::5])
    assert model.classes_.tolist() == [-1, 1]
    assert model.score(X, signs) > 0.9
    gaps = np.where(np.arange(150) % 5 == 0, signs.astype(float), np.nan)
    assert unem.TransductiveClassifier(unlabelled=None).fit(X, gaps).classes_.tolist() == [-1.0, 1.0]


def test_data_frames_are_checked_by_name():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = unem.TransductiveClassifier().fit(X[::10], y[::10])
    assert model.feature_names_in_.tolist() == list(X.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={X.columns[0]: "other"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "unheard-of"}, "no method is called"),
        ({"method": "prototypes", "schedule": "unem-plus/resnet18"}, "works without one"),
        ({"method": "unem-joint"}, "text: 'unem-joint' needs"),
        ({"text": np.zeros((2, 4))}, r"text: expected one embedding for each class, \(3, 4\)"),
        ({"text": {0: np.zeros(4)}}, "text: there is none for class 1"),
        ({"options": {"wrong": 1}}, "has no setting 'wrong'"),
        ({"schedule": "nowhere.json"}, "neither a file nor a preset"),
        ({"decision": "fair"}, "decision: expected 'accuracy' or 'balanced', got 'fair'"),
    ],
)
def test_what_cannot_be_used_is_named(change, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(unem.InputError, match=message):
        unem.TransductiveClassifier(**change).fit(X, y)


def test_all_rows_unlabelled():
    with pytest.raises(unem.InputError, match="none of 3 rows has a label"):
        unem.TransductiveClassifier().fit(np.eye(3), [-1, -1, -1])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 5),
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from(["auto", "unem-gaussian", "em-gaussian", "simpleshot"]),
    st.integers(0, 2**31),
)
def test_any_shape_gives_a_distribution_for_each_row(classes, shots, queries, dim, method, seed):
    rng = np.random.RandomState(seed)
    y = np.repeat(np.arange(classes), shots)
    X = rng.randn(len(y), dim) + y[:, None]
    shares = unem.TransductiveClassifier(method).fit(X, y).predict_proba(rng.randn(queries, dim))
    assert shares.shape == (queries, classes)
    assert np.isfinite(shares).all()
    np.testing.assert_allclose(shares.sum(1), 1)


# -- where people are --------------------------------------------------------------------------------------------------


def test_in_a_pipeline_with_a_grid_search_and_clones(digits):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), PCA(20, random_state=0), unem.TransductiveClassifier())
    grid = {"pca__n_components": [2, 20], "transductiveclassifier__method": ["unem-plus", "prototypes"]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X[:150], y[:150])
    assert search.best_params_["pca__n_components"] == 20
    assert search.score(X[150:], y[150:]) > 0.8
    again = clone(search.best_estimator_).fit(X[:150], y[:150])
    np.testing.assert_array_equal(again.predict(X[150:]), search.predict(X[150:]))
    assert cross_val_score(pipeline, X[:150], y[:150], cv=3).mean() > 0.7


def test_transformers_before_it_may_give_data_frames(digits):
    X, y = digits
    pipeline = make_pipeline(StandardScaler(), unem.TransductiveClassifier()).set_output(transform="pandas")
    pipeline.fit(X[:60], y[:60])
    assert pipeline[-1].feature_names_in_[0] == "x0"
    plain = make_pipeline(StandardScaler(), unem.TransductiveClassifier()).fit(X[:60], y[:60])
    np.testing.assert_array_equal(pipeline.predict(X[60:]), plain.predict(X[60:]))


def test_a_schedule_of_ones_own(digits, tmp_path):
    X, y = digits
    schedule = unem.Schedule(class_balance=1.0, temperature=2.0, feature_scale=0.1, layers=3)
    schedule.save(tmp_path / "own.json")
    models = [
        unem.TransductiveClassifier("unem-gaussian", s).fit(X, few(y)) for s in (schedule, str(tmp_path / "own.json"))
    ]
    direct = unem.gem(unem.Task(X[:40], y[:40], X[40:]), unem.Gaussian(), schedule).probabilities
    for model in models:
        np.testing.assert_allclose(model.label_distributions_[40:], direct.numpy(), atol=1e-9)
        assert (model.n_iter_, model.schedule_reason_) == (3, "it was given")


def test_texts_by_label_or_in_the_order_of_the_classes():
    torch.manual_seed(0)
    text = torch.nn.functional.normalize(torch.randn(4, 16), dim=-1)
    y = np.tile(["d", "b", "c", "a"], 10)
    X = text["abcd".index("d") :].new_tensor(np.array([text["abcd".index(v)].numpy() for v in y]))
    X = (3 * (X + 0.3 * torch.randn_like(X))).numpy()
    by_name = {v: text["abcd".index(v)].numpy() for v in "abcd"}
    models = [unem.TransductiveClassifier(text=t).fit(X[:4], y[:4]) for t in (by_name, text.numpy())]
    assert models[0].method_.name == "evidence-joint"
    assert models[0].score(X[4:], y[4:]) > 0.9
    np.testing.assert_array_equal(models[0].predict_proba(X[4:]), models[1].predict_proba(X[4:]))


def text_data(seed=0, noise=0.15):
    """Two labelled rows a class and a hundred others, around the texts of four classes, in one corner of the sphere."""
    g = torch.Generator().manual_seed(seed)
    text = torch.nn.functional.normalize(torch.randn(4, 16, generator=g) + 1, dim=-1)
    y = torch.arange(108) % 4
    X = 5 * (text[y] + noise * torch.randn(108, 16, generator=g))
    return X[:8].numpy(), y[:8].numpy(), X[8:].numpy(), y[8:].numpy(), text.numpy()


@pytest.mark.parametrize("method", ["em-dirichlet", "unem-dirichlet", "zero-shot", "zero-shot-evidence", "otter"])
def test_methods_of_texts_get_what_they_want(method):
    """Cosines with the texts, or unit features beside them: the same task as everywhere."""
    few, labels, X, y, text = text_data()
    model = unem.TransductiveClassifier(method, text=text).fit(few, labels)
    answer = label_features(few, labels, X, list("abcd"), text=text, method=method)
    np.testing.assert_allclose(model.predict_proba(X), answer.probabilities.numpy(), atol=1e-6)
    assert model.score(X, y) > 0.9


def test_a_method_of_features_takes_no_notice_of_texts():
    few, labels, X, _, text = text_data()
    with_text, without = (
        unem.TransductiveClassifier("paddle", text=t).fit(few, labels).predict_proba(X) for t in (text, None)
    )
    np.testing.assert_array_equal(with_text, without)


# -- what the answer is by ---------------------------------------------------------------------------------------------


def test_the_automatic_method_needs_no_schedule(digits):
    X, y = digits
    fitted, later = unem.TransductiveClassifier().fit(X, few(y)), unem.TransductiveClassifier().fit(X[:40], y[:40])
    for model in (fitted, later):
        assert (model.method_.name, model.schedule_, model.n_iter_) == ("evidence", None, 1)
        assert "which mix of the 10 classes is present, from 40 labelled rows" in model.schedule_reason_
    assert unem.TransductiveClassifier("evidence").fit(X, few(y)).schedule_reason_ is None


def test_a_schedule_brings_its_method(digits):
    X, y = digits
    model = unem.TransductiveClassifier(schedule="unem-plus/resnet18").fit(X[:40], y[:40])
    assert (model.method_.name, model.schedule_) == ("unem-plus", unem.load_schedule("unem-plus/resnet18"))
    assert model.schedule_reason_ == "it was given"


def test_a_balanced_decision_changes_labels_and_no_probabilities(digits):
    X, y = digits
    heavy = np.concatenate([np.arange(40), 40 + np.flatnonzero((y[40:] == 3) | (np.arange(360) % 20 == 0))])
    X, y = X[heavy], y[heavy]
    plain, fair = (unem.TransductiveClassifier(decision=d).fit(X, few(y)) for d in ("accuracy", "balanced"))
    np.testing.assert_array_equal(plain.label_distributions_, fair.label_distributions_)
    expected = decided(torch.from_numpy(fair.label_distributions_[40:]), "balanced").numpy()
    np.testing.assert_array_equal(fair.transduction_[40:], expected)
    np.testing.assert_array_equal(fair.transduction_[:40], y[:40])
    np.testing.assert_array_equal(fair.predict(X[40:]), expected)


def test_the_method_fits_on_a_line(digits):
    X, y = digits
    model = unem.TransductiveClassifier("unem-plus").fit(X[:40], y[:40])
    assert len(repr(model.method_)) < 200
    assert "unem-plus/clip-rn50" in repr(model.method_)


def test_scikit_learn_waits_until_it_is_asked_for():
    program = "import sys, unem\nassert 'sklearn' not in sys.modules\nunem.TransductiveClassifier\n"
    program += "assert 'sklearn' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        unem.Nonsense  # noqa: B018


def test_the_example_s_splits_and_text():
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    try:
        import sklearn_estimator as example
    finally:
        sys.path.pop(0)
    texts, modules = example.documents()
    assert len(texts) == len(set(texts)) > 500
    assert min(np.unique(modules, return_counts=True)[1]) >= example.FEWEST
    y = np.repeat(np.arange(6), 20)
    labelled, batch = example.split(y, 3, 30, 2, seed=1)
    assert not set(labelled) & set(batch)
    assert np.bincount(y[labelled]).tolist() == [3] * 6
    assert len(np.unique(y[batch])) == 2
    assert len(batch) == 30


@pytest.mark.parametrize("kind", [int, float, str])
def test_labels_of_minus_one_and_one(kind):
    """−1 marks rows without a label; where it is a class, that is asked about rather than half of the rows lost."""
    X, y = make_blobs(60, n_features=8, centers=2, random_state=0)
    y = np.where(y == 0, -1, 1).astype(kind)
    with pytest.raises(InputError, match=r"y: .* only one class, 1.*; 30 rows count as unlabelled, since -1"):
        TransductiveClassifier().fit(X, y)
    model = TransductiveClassifier(unlabelled=None).fit(X, y)
    assert len(model.classes_) == 2
    assert (model.predict(X) == y).mean() > 0.9


def test_one_class_is_refused():
    X, _ = make_blobs(20, n_features=4, centers=2, random_state=0)
    with pytest.raises(InputError, match=r"y: expected at least two classes .*, there is only one class, 3$"):
        TransductiveClassifier().fit(X, np.full(20, 3))


def test_notes_say_what_too_few_labels_mean_and_nothing_warns_of_many_classes():
    rows = np.random.default_rng(0).normal(size=(40, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one_each = TransductiveClassifier().fit(rows, np.where(np.arange(40) < 25, np.arange(40), -1))
    assert "a second labelled sample of 13 more classes" in one_each.notes_[0]
    assert TransductiveClassifier().fit(rows, np.where(np.arange(40) < 15, np.arange(40) % 5, -1)).notes_ == ()
