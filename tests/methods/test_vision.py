"""Methods for vision features, each against its formulas written out for one task, or against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.special import softmax

import unem
from helpers import reference
from helpers.tasks import each_task, means_of, uneven_task, unit
from unem.errors import InputError
from unem.methods import method_info
from unem.methods.lr_ici import entry_penalties, lowest_of_class, principal_basis
from unem.methods.pt_map import balanced

NAMES = ["baseline", "bd-cspn", "pt-map", "laplacian-shot", "lr-ici"]


def assert_equals_one_by_one(method, task, formula, atol=1e-9):
    result = method.predict(task).probabilities.numpy()
    for u, one in zip(result, each_task(task), strict=True):
        np.testing.assert_allclose(u, formula(*one), atol=atol)


def test_baseline_is_what_autograd_and_torchs_adam_give():
    def formula(support, labels, query):
        support, query = torch.tensor(unit(support)), torch.tensor(unit(query))
        weights = torch.tensor(means_of(support.numpy(), labels), requires_grad=True)
        adam = torch.optim.Adam([weights], lr=0.02)
        for _ in range(30):
            logits = -7.5 * (support[:, None] - weights).square().sum(-1)
            adam.zero_grad()
            torch.nn.functional.cross_entropy(logits, torch.tensor(labels)).backward()
            adam.step()
        return (-7.5 * (query[:, None] - weights).square().sum(-1)).softmax(-1).detach().numpy()

    assert_equals_one_by_one(
        unem.create_method("baseline", steps=30, learning_rate=0.02), uneven_task(), formula, atol=1e-6
    )


@given(seed=st.integers(0, 10**6), temperature=st.floats(0.1, 100))
@settings(max_examples=25)
def test_bd_cspn_is_its_formula(seed, temperature):
    def weight(z, prototypes, k):
        return softmax(temperature * (1 - cdist([z], prototypes, "cosine")[0]))[k]

    def formula(support, labels, query):
        support, query = unit(support), unit(query)
        shifted = query + support.mean(0) - query.mean(0)
        prototypes = means_of(support, labels)
        nearest = cdist(shifted, prototypes, "cosine").argmin(1)
        rectified = []
        for k in range(len(prototypes)):
            members = np.concatenate([support[labels == k], shifted[nearest == k]])
            weights = np.array([weight(z, prototypes, k) for z in members])
            rectified.append((weights[:, None] * members).sum(0) / weights.sum())
        return np.stack([softmax(temperature * (1 - cdist([z], rectified, "cosine")[0])) for z in query])

    assert_equals_one_by_one(
        unem.create_method("bd-cspn", temperature=temperature), uneven_task(seed), formula, atol=1e-7
    )


def sinkhorn(cost, sharpness):
    """Scaling of rows and columns in turn, until both sums are right."""
    plan = np.exp(-sharpness * cost)
    for _ in range(20000):
        plan *= len(plan[0]) ** -1 * len(plan) / plan.sum(0)
        plan /= plan.sum(1, keepdims=True)
    np.testing.assert_allclose(plan.sum(0), len(plan) / len(plan[0]), atol=1e-9)
    return plan


def test_pt_map_is_its_formula_with_the_published_reduction():
    def formula(support, labels, query):
        z = np.sqrt(np.maximum(np.concatenate([support, query]), 0) + 1e-6)
        z = unit(np.linalg.qr(z.T).R.T)  # rows expressed in an orthonormal base of what they span
        support, query = z[: len(support)], z[len(support) :]
        support, query = unit(support - support.mean(0)), unit(query - query.mean(0))
        centres = means_of(support, labels)
        plan = sinkhorn(cdist(query, centres, "sqeuclidean"), 4.0)
        for _ in range(3):
            for k in range(len(centres)):
                total = support[labels == k].sum(0) + plan[:, k] @ query
                centres[k] += 0.2 * (total / ((labels == k).sum() + plan[:, k].sum()) - centres[k])
            plan = sinkhorn(cdist(query, centres, "sqeuclidean"), 4.0)
        return plan

    task = uneven_task(features=40)
    assert_equals_one_by_one(unem.create_method("pt-map", sharpness=4.0, iterations=3), task, formula, atol=1e-4)


@given(
    seed=st.integers(0, 10**6), queries=st.integers(1, 30), classes=st.integers(1, 8), sharpness=st.floats(0.01, 1e4)
)
def test_transport_has_its_marginals_or_at_least_probabilities(seed, queries, classes, sharpness):
    g = torch.Generator().manual_seed(seed)
    scores = -sharpness * 4 * torch.rand(2, queries, classes, generator=g)
    plan = balanced(scores)
    torch.testing.assert_close(plan.sum(-1), torch.ones(2, queries))
    if sharpness < 2:  # a sharp plan may need more scalings than there are
        torch.testing.assert_close(plan.sum(1), torch.full((2, classes), queries / classes), rtol=1e-5, atol=0)


@given(seed=st.integers(0, 10**6), smoothness=st.floats(0, 20), neighbours=st.integers(1, 15), centred=st.booleans())
@settings(max_examples=25)
def test_laplacian_shot_is_its_formula(seed, smoothness, neighbours, centred):
    def formula(support, labels, query):
        centre = support.mean(0) if centred else 0
        support, query = unit(support - centre), unit(query - centre)
        unary = cdist(query, means_of(support, labels), "sqeuclidean")
        graph = np.zeros((len(query), len(query)))
        for q, row in enumerate(cdist(query, query)):
            graph[q, [p for p in row.argsort() if p != q][:neighbours]] = 1
        u = softmax(-unary, axis=1)
        for _ in range(6):
            u = softmax(smoothness * graph @ u - unary, axis=1)
        return u

    method = unem.create_method(
        "laplacian-shot", smoothness=smoothness, neighbours=neighbours, iterations=6, centred=centred
    )
    assert_equals_one_by_one(method, uneven_task(seed), formula, atol=1e-7)


def test_a_single_query_has_no_neighbours():
    task = reference.random_task(queries=1)
    one, other = (unem.create_method("laplacian-shot", smoothness=s).predict(task).probabilities for s in (0, 5))
    assert torch.equal(one, other)


@given(seed=st.integers(0, 10**6), inverse_penalty=st.floats(0.01, 30))
@settings(max_examples=10)
def test_lr_without_rounds_is_sklearns_logistic_regression(seed, inverse_penalty):
    from sklearn.linear_model import LogisticRegression

    def formula(support, labels, query):
        model = LogisticRegression(C=inverse_penalty, tol=1e-9, max_iter=10000).fit(unit(support), labels)
        return model.predict_proba(unit(query))

    method = unem.create_method("lr-ici", inverse_penalty=inverse_penalty, rounds=0, steps=300)
    assert_equals_one_by_one(method, uneven_task(seed), formula, atol=1e-5)


def entries_by_sklearn(projected, labels, penalties):
    """Bounds of each sample's penalty of entry: the cell of scikit-learn's path where its row leaves 0."""
    from sklearn.linear_model import lasso_path

    complement = np.eye(len(projected)) - projected @ np.linalg.pinv(projected)
    first = np.linalg.norm(complement @ labels, axis=1).max() / len(projected)  # scikit-learn divides the squares by n
    grid = first * np.logspace(0, -3, penalties)
    values, rows, _ = lasso_path(complement, complement @ labels, alphas=grid, tol=1e-10, max_iter=100000)
    active = np.linalg.norm(rows, axis=0) > 0
    first = active.argmax(1)
    low, high = (np.where(active.any(1), values[i], 0) * len(projected) for i in (first, first - 1))
    return low, high


@pytest.mark.parametrize(("seed", "features"), [(0, 6), (1, 40), (2, 3)])
def test_credibility_is_the_lasso_path_of_scikit_learn(seed, features):
    from sklearn.decomposition import PCA

    task = reference.random_task(1, 5, 3, 30, features, seed)
    samples = torch.cat([task.support, task.query], 1)
    labels = torch.eye(5, dtype=torch.float64)[torch.randint(5, samples.shape[:2])]
    basis = principal_basis(samples, torch.ones_like(samples[..., :1]), 2)
    low, high = entries_by_sklearn(PCA(2).fit_transform(samples[0].numpy()), labels[0].numpy(), 100)
    entry = entry_penalties(basis, labels, 100)[0].numpy()
    assert (entry >= 0.999 * low).all()
    assert (entry <= 1.001 * high).all()


def test_lr_ici_is_its_rounds_written_out():
    """Logistic regression, principal components and an exact path by scikit-learn; the most credible join by a loop."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression

    def model():
        return LogisticRegression(C=10, tol=1e-9, max_iter=10000)

    def formula(support, labels, query):
        support, query = unit(support), unit(query)
        projected = PCA(2).fit_transform(np.concatenate([support, query]))
        train, targets = support, labels
        for number in (1, 2):
            pseudo = model().fit(train, targets).predict(query)
            one_hot = np.eye(labels.max() + 1)[np.concatenate([labels, pseudo])]
            low, _ = entries_by_sklearn(projected, one_hot, 400)  # finer than the samples differ
            doubt = low[len(support) :]
            chosen = [
                q for k in range(4) for q in sorted(np.flatnonzero(pseudo == k), key=doubt.__getitem__)[: 2 * number]
            ]
            train, targets = np.concatenate([support, query[chosen]]), np.concatenate([labels, pseudo[chosen]])
        return model().fit(train, targets).predict_proba(query)

    assert_equals_one_by_one(unem.create_method("lr-ici", rounds=2, per_round=2), uneven_task(8), formula, atol=1e-5)


@pytest.mark.parametrize(
    ("samples", "rank"), [(torch.randn(9, 4), 3), (torch.randn(4, 9), 3), (torch.randn(9, 1) * torch.ones(4), 1)]
)
def test_principal_basis_is_orthonormal_and_knows_its_rank(samples, rank):
    basis = principal_basis(samples[None], torch.ones(1, len(samples), 1), 3)[0]
    expected = torch.diag((torch.arange(3) >= 3 - rank).float())
    torch.testing.assert_close(basis.mT @ basis, expected, rtol=0, atol=1e-4)


@given(
    values=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=12), count=st.integers(1, 5)
)
def test_lowest_of_class_by_sorting(values, count):
    scores, classes = (torch.tensor(v) for v in zip(*values, strict=True))
    chosen = lowest_of_class(scores[None].float(), classes[None], count)[0, :, 0]
    members = [[i for i in range(len(values)) if classes[i] == k] for k in range(3)]
    expected = {i for group in members for i in sorted(group, key=lambda i: (scores[i], i))[:count]}
    assert set(chosen.nonzero().flatten().tolist()) == expected


def easy_task(tasks=3, classes=4, shots=3, queries=24, features=16, dtype=torch.float64):
    """Well separated classes of features that are not negative, as many queries of each."""
    g = torch.Generator().manual_seed(3)
    centres = 4 * torch.rand(tasks, classes, features, generator=g, dtype=dtype)
    labels, truth = torch.arange(classes * shots) % classes, torch.arange(queries) % classes
    support = (
        centres[:, labels] + 0.3 * torch.randn(tasks, classes * shots, features, generator=g, dtype=dtype)
    ).relu()
    query = (centres[:, truth] + 0.3 * torch.randn(tasks, queries, features, generator=g, dtype=dtype)).relu()
    return unem.Task(support, labels.expand(tasks, -1), query, num_classes=classes), truth


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_easy_tasks_are_solved(name, dtype):
    task, truth = easy_task(dtype=dtype)
    with torch.inference_mode():
        prediction = unem.create_method(name).predict(task)
    assert prediction.probabilities.dtype == dtype
    assert (prediction.labels == truth).float().mean() > 0.95
    torch.testing.assert_close(prediction.probabilities.sum(-1), torch.ones(3, 24, dtype=dtype))


@pytest.mark.parametrize("name", NAMES)
def test_batches_and_orders_do_not_matter(name):
    task, method = uneven_task(seed=5), unem.create_method(name)
    whole = method.predict(task).probabilities
    assert torch.equal(method.predict(task).probabilities, whole)
    torch.testing.assert_close(torch.cat([method.predict(t).probabilities for t in task]), whole, rtol=0, atol=1e-8)

    order = torch.randperm(task.num_queries)
    mixed = task.with_features(task.support, task.query[:, order])
    torch.testing.assert_close(method.predict(mixed).probabilities, whole[:, order], rtol=0, atol=1e-6)

    renamed = torch.randperm(task.num_classes)
    labels = torch.where(task.support_labels < 0, -1, renamed[task.support_labels])
    relabelled = unem.Task(task.support, labels, task.query, num_classes=task.num_classes)
    torch.testing.assert_close(method.predict(relabelled).probabilities[..., renamed], whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_the_task_dimension_do_not_matter(name):
    task, method = uneven_task(), unem.create_method(name)
    there = task.support_labels[0] >= 0
    single = unem.Task(task.support[0, there], task.support_labels[0, there], task.query[0])
    result = method.predict(single).probabilities
    assert result.shape == (task.num_queries, task.num_classes)
    torch.testing.assert_close(result, method.predict(task).probabilities[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_coinciding_and_zero_features_give_probabilities(name):
    for value in (0.0, 1.0):
        samples = torch.full((6, 3), value)
        result = unem.create_method(name).predict(unem.Task(samples, torch.arange(6) % 3, samples)).probabilities
        torch.testing.assert_close(result.sum(-1), torch.ones(6))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("baseline", {"temperature": 0}, "temperature: expected a finite number above 0, got 0"),
        ("baseline", {"steps": -1}, "steps: expected a whole number of at least 0"),
        ("baseline", {"learning_rate": float("nan")}, "learning_rate"),
        ("bd-cspn", {"temperature": -1.0}, "temperature"),
        ("pt-map", {"power": 0.0}, "power"),
        ("pt-map", {"sharpness": float("inf")}, "sharpness"),
        ("pt-map", {"step": 1.5}, "step: expected a number above 0, at most 1"),
        ("pt-map", {"iterations": -2}, "iterations"),
        ("laplacian-shot", {"smoothness": -0.1}, "smoothness"),
        ("laplacian-shot", {"neighbours": 0}, "neighbours"),
        ("lr-ici", {"inverse_penalty": 0.0}, "inverse_penalty"),
        ("lr-ici", {"components": 0}, "components"),
        ("lr-ici", {"per_round": 0}, "per_round"),
        ("lr-ici", {"rounds": -1}, "rounds"),
        ("lr-ici", {"penalties": 1}, "penalties"),
        ("lr-ici", {"steps": 0}, "steps"),
        ("laplacian-shot", {"iterations": 2.5}, "iterations: expected int"),
    ],
)
def test_settings_are_checked(name, options, message):
    with pytest.raises(InputError, match=message):
        unem.create_method(name, **options)


@pytest.mark.parametrize("name", NAMES)
def test_a_method_tells_its_settings(name):
    assert unem.create_method(name).describe() == method_info(name).options


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_gives_the_same(name):
    task, _ = easy_task()
    here, there = (unem.create_method(name).predict(task.to(d)).probabilities for d in ("cpu", "cuda"))
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-6)
