"""Methods against published packages: POT, scikit-learn and scipy; and where each method is checked against something
outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ot
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import softmax

import unem
from helpers import reference
from helpers.tasks import each_task, image_text_task, means_of, parts, uneven_task, unit
from unem.methods.pt_map import balanced, transformed

TESTS = Path(__file__).parents[1]
OUTSIDE = {
    "self-training": "methods/test_evidence.py::test_self_training_is_scikit_learns",
    "whitened-mean": "core/test_whitening.py::test_products_are_those_of_the_formula",
    "zero-shot-evidence": "evidence/test_reference.py::test_texts_alone",
    # torch.optim and autograd
    "alpha-am": "methods/test_vision_graphs.py::test_adaptive_manifold_is_adam_on_its_objective",
    "alpha-tim": "methods/test_vision_graphs.py::test_tim_is_adam_on_the_papers_objective",
    "baseline": "methods/test_vision.py::test_baseline_is_what_autograd_and_torchs_adam_give",
    "bd-cspn": "methods/test_vision.py::test_bd_cspn_is_its_formula",  # scipy's cosine distances
    # torch.optim and autograd; transformers' own prompts
    "coop": "methods/test_coop.py::test_a_batch_is_torch_sgd_on_each_task",
    "em-dirichlet": "core/test_em.py::test_em_dirichlet_is_a_schedule",  # scipy's optimiser
    "em-gaussian": "methods/test_outside.py::test_em_gaussian_is_scikit_learns_mixture",
    "evidence": "evidence/test_reference.py::test_the_library_does_what_the_page_says",
    "evidence-joint": "evidence/test_reference.py::test_the_library_does_what_the_page_says",
    "gem-dirichlet": "methods/test_outside.py::test_unem_is_its_layers_written_out",
    "gem-gaussian": "methods/test_outside.py::test_unem_is_its_layers_written_out",
    "hard-em-dirichlet": "core/test_em.py::test_em_dirichlet_is_a_schedule",
    "label-propagation": "methods/test_vision_graphs.py::test_label_propagation_is_sklearns",
    "laplacian-shot": "methods/test_outside.py::test_laplacian_shot_on_scikit_learns_graph",
    "logistic": "methods/test_vision_graphs.py::test_logistic_is_sklearns",
    "lp++": "methods/test_image_text.py::test_lp_plus_plus",  # autograd; the loss never increases
    # Scikit-learn's regression, components and path
    "lr-ici": "methods/test_vision.py::test_lr_ici_is_its_rounds_written_out",
    "otter": "methods/test_outside.py::test_otter_is_pots_sinkhorn",
    "paddle": "core/test_em.py::test_paddle_is_a_schedule_on_scaled_channels",
    "prototypes": "methods/test_outside.py::test_prototypes_are_scikit_learns",
    "pt-map": "methods/test_outside.py::test_pt_map_with_pots_plans",
    "simpleshot": "methods/test_outside.py::test_simpleshot_is_scikit_learns_nearest_centroid",
    "soft-kmeans": "core/test_em.py::test_beta0_is_soft_kmeans",
    "stata": "methods/test_image_text.py::test_stata",  # and its objective never increases
    # And test_tim_adm_has_the_papers_updates there
    "tim-adm": "methods/test_outside.py::test_both_ways_to_maximise_information_agree",
    "tim-gd": "methods/test_vision_graphs.py::test_tim_is_adam_on_the_papers_objective",
    "tip-adapter": "methods/test_image_text.py::test_tip_adapter",
    "tip-adapter-f": "methods/test_image_text.py::test_tip_adapter_f",
    "transclip": "methods/test_image_text.py::test_transclip",  # and its objective never increases
    # And the published outputs, where they are at hand
    "unem-dirichlet": "methods/test_outside.py::test_unem_is_its_layers_written_out",
    "unem-gaussian": "methods/test_outside.py::test_unem_is_its_layers_written_out",
    # And each ingredient there, written out
    "unem-joint": "core/laws/test_directions.py::test_text_adds_its_similarity_in_every_layer",
    "zero-shot-unem-joint": "learning/test_layered.py::test_without_support_the_text_decides_first",
    "unem-plus": "core/laws/test_directions.py::test_leave_one_out_leaves_one_out",
    "zero-shot": "methods/test_outside.py::test_zero_shot_is_a_softmax_of_cosines",
    "zero-shot-em-dirichlet": "methods/test_image_text.py::test_zero_shot_family",
    "zero-shot-em-gaussian": "methods/test_outside.py::test_zero_shot_em_is_scikit_learns_mixture",
    "zero-shot-em-gaussian-diagonal": "methods/test_outside.py::test_zero_shot_em_is_scikit_learns_mixture",
    "zero-shot-hard-em-dirichlet": "methods/test_image_text.py::test_zero_shot_family",
    "zero-shot-kmeans-hard": "methods/test_outside.py::test_zero_shot_kmeans_is_scikit_learns",
    "zero-shot-kmeans-kl": "methods/test_image_text.py::test_zero_shot_family",
    "zero-shot-kmeans-soft": "methods/test_image_text.py::test_zero_shot_family",
    "zlap": "methods/test_image_text.py::test_zlap",
}


def test_every_method_is_checked_against_something_outside():
    assert set(OUTSIDE) == {info.name for info in unem.list_methods()}
    for where in OUTSIDE.values():
        path, _, test = where.partition("::")
        assert f"\ndef {test}(" in (TESTS / path).read_text(encoding="utf-8"), where


# -- optimal transport: POT
# ------------------------------------------------------------------------------------------------


def pot_plan(cost, column_mass, regulariser):
    """Rows that sum to 1, columns to their share of the queries."""
    rows = np.full(len(cost), 1 / len(cost))
    return len(cost) * ot.sinkhorn(rows, column_mass, cost, regulariser, numItermax=20000, stopThr=1e-12)


@pytest.mark.parametrize("prior", [None, (0.4, 0.3, 0.2, 0.1)])
def test_otter_is_pots_sinkhorn(prior):
    task, _ = image_text_task(noise=1.0, seed=3)
    u = unem.create_method("otter", prior=prior, regulariser=5.0, iterations=3000).predict(task).probabilities
    for i in range(len(task)):
        _, _, query, text = parts(task, i)
        cost = -np.log(softmax(100 * query @ text.T, axis=1))
        expected = pot_plan(cost, np.full(4, 0.25) if prior is None else np.array(prior), 5.0)
        np.testing.assert_allclose(u[i].numpy(), expected, atol=1e-8)


def test_otter_tends_to_pots_exact_plan():
    """The cost of the entropic plan exceeds the least by at most ε times the entropy it can have, ln K for each
    query."""
    task, _ = image_text_task(noise=1.0, seed=3)
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    for regulariser in (1.0, 0.2):
        u = unem.create_method("otter", prior=tuple(prior), regulariser=regulariser, iterations=20000).predict(task)
        for i in range(len(task)):
            _, _, query, text = parts(task, i)
            cost = -np.log(softmax(100 * query @ text.T, axis=1))
            least = ot.emd2(np.full(len(query), 1 / len(query)), prior, cost)
            mine = (u.probabilities[i].numpy() * cost).sum() / len(query)
            assert least - 1e-9 <= mine <= least + regulariser * np.log(4)


@pytest.mark.parametrize("sharpness", [1.0, 10.0])
def test_transport_of_pt_map_is_pots(sharpness):
    distances = torch.rand(3, 20, 5, dtype=torch.float64)
    plan = balanced(-sharpness * distances)
    for mine, cost in zip(plan, distances, strict=True):
        expected = pot_plan(cost.numpy(), np.full(5, 0.2), 1 / sharpness)
        np.testing.assert_allclose(mine.numpy(), expected, atol=1e-6)


def test_pt_map_with_pots_plans():
    """The published loop with its settings (step 0.2, λ = 10, 20 epochs) on features already transformed."""
    task = uneven_task(features=40)
    u = unem.create_method("pt-map").predict(task).probabilities.numpy()
    for mine, (support, labels, query) in zip(u, each_task(transformed(task, 0.5)), strict=True):
        centres = means_of(support, labels)

        def plan(centres, query=query):
            return pot_plan(((query[:, None] - centres) ** 2).sum(-1), np.full(len(centres), 1 / len(centres)), 0.1)

        onehot = np.eye(len(centres))[labels]
        for _ in range(20):
            weights, samples = np.concatenate([onehot, plan(centres)]), np.concatenate([support, query])
            centres = centres + 0.2 * (weights.T @ samples / weights.sum(0)[:, None] - centres)
        np.testing.assert_allclose(mine, plan(centres), atol=1e-4)


# -- mixtures, means and graphs: scikit-learn
# ------------------------------------------------------------------------------


def mixture(weights, means, variances):
    """scikit-learn's mixture of Gaussians with given parameters, variances of each class and feature."""
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(len(means), covariance_type="diag")
    model.weights_, model.means_, model.covariances_ = weights, means, variances
    model.precisions_cholesky_ = variances**-0.5
    return model


def test_prototypes_are_scikit_learns():
    """The labels of its nearest centroids, the probabilities of its mixture with one variance and equal proportions."""
    from sklearn.neighbors import NearestCentroid

    task, scale = uneven_task(), 0.7
    prediction = unem.create_method("prototypes", feature_scale=scale).predict(task)
    for u, (support, labels, query) in zip(prediction.probabilities, each_task(task), strict=True):
        means = means_of(support, labels)
        model = mixture(np.full(4, 0.25), means, np.full_like(means, scale**-2))
        np.testing.assert_allclose(u.numpy(), model.predict_proba(query), atol=1e-10)
        assert (u.argmax(-1).numpy() == NearestCentroid().fit(support, labels).predict(query)).all()


def test_simpleshot_is_scikit_learns_nearest_centroid():
    from sklearn.neighbors import NearestCentroid
    from sklearn.preprocessing import normalize

    task, base = uneven_task(), torch.randn(5, dtype=torch.float64)
    prediction = unem.create_method("simpleshot", base_mean=base).predict(task)
    for predicted, (support, labels, query) in zip(prediction.labels, each_task(task), strict=True):
        support, query = (normalize(z - base.numpy()) for z in (support, query))
        assert (predicted.numpy() == NearestCentroid().fit(support, labels).predict(query)).all()


def test_em_gaussian_is_scikit_learns_mixture():
    """Each E-step is its posterior, at the weights and means of the labelled points and the step before."""
    task = reference.random_task(tasks=2, classes=3, queries=60, features=2)
    before, after = (
        unem.create_method("em-gaussian", iterations=n).predict(task).probabilities.numpy() for n in (3, 4)
    )
    for u, expected, (support, labels, query) in zip(before, after, each_task(task), strict=True):
        weights = np.concatenate([np.eye(3)[labels], u])
        means = weights.T @ np.concatenate([support, query]) / weights.sum(0)[:, None]
        model = mixture(u.mean(0), means, np.ones_like(means))
        np.testing.assert_allclose(expected, model.predict_proba(query), atol=1e-4)  # the floor of π, 1e-6


@pytest.mark.parametrize("diagonal", [False, True])
def test_zero_shot_em_is_scikit_learns_mixture(diagonal):
    task = reference.random_task(tasks=3, classes=4, queries=60, similarities=True, seed=5)
    name = "zero-shot-em-gaussian-diagonal" if diagonal else "zero-shot-em-gaussian"
    options = {"temperature": 1.0, "class_balance": 1.0, "matching": False}
    before, after = (
        unem.create_method(name, iterations=n, **options).predict(task).probabilities.numpy() for n in (2, 3)
    )
    for u, expected, query in zip(before, after, task.query.numpy(), strict=True):
        z = softmax(30 * query, axis=1)
        means = u.T @ z / u.sum(0)[:, None]
        spread = np.einsum("nk,nkd->kd", u, (z[:, None] - means) ** 2) / u.sum(0)[:, None]
        model = mixture(u.mean(0), means, spread if diagonal else np.ones_like(means))
        np.testing.assert_allclose(expected, model.predict_proba(z), atol=1e-7)


def test_zero_shot_kmeans_is_scikit_learns():
    from sklearn.cluster import KMeans

    task = reference.random_task(tasks=4, classes=2, queries=60, similarities=True, seed=7)
    labels = unem.create_method("zero-shot-kmeans-hard", iterations=50, matching=False).predict(task).labels
    for mine, query in zip(labels, task.query.numpy(), strict=True):
        z = softmax(30 * query, axis=1)
        model = KMeans(2, init=z.T @ z / z.sum(0)[:, None], n_init=1, tol=0, max_iter=50).fit(z)
        assert (mine.numpy() == model.labels_).all()


def test_laplacian_shot_on_scikit_learns_graph():
    """The published knn = 3 counts the query itself: two neighbours are left, which is the default."""
    from sklearn.neighbors import NearestNeighbors

    task = uneven_task(seed=2)
    result = unem.create_method("laplacian-shot").predict(task).probabilities.numpy()
    for mine, (support, labels, query) in zip(result, each_task(task), strict=True):
        centre = support.mean(0)
        support, query = unit(support - centre), unit(query - centre)
        unary = ((query[:, None] - means_of(support, labels)) ** 2).sum(-1)
        graph = NearestNeighbors(n_neighbors=3).fit(query).kneighbors_graph(query).toarray() - np.eye(len(query))
        u = softmax(-unary, axis=1)
        for _ in range(20):
            u = softmax(0.7 * graph @ u - unary, axis=1)
        np.testing.assert_allclose(mine, u, atol=1e-8)


# -- formulas
# --------------------------------------------------------------------------------------------------------------


def test_zero_shot_is_a_softmax_of_cosines():
    task, _ = image_text_task()
    similarities = unem.Task(task.support @ task.text.mT, task.support_labels, task.query @ task.text.mT)
    u = unem.create_method("zero-shot").predict(similarities).probabilities
    for i in range(len(task)):
        _, _, query, text = parts(task, i)
        np.testing.assert_allclose(u[i].numpy(), softmax(100 * (1 - cdist(query, text, "cosine")), axis=1), atol=1e-9)


@pytest.mark.parametrize("name", ["unem-gaussian", "unem-dirichlet", "gem-gaussian", "gem-dirichlet"])
def test_unem_is_its_layers_written_out(name):
    kind, law = name.split("-")
    betas, temperatures, scale = (1.0, 4.0, 2.0), (1.5, 1.0, 1.2), 30.0 if law == "dirichlet" else 0.8
    task = reference.random_task(tasks=2, queries=15, similarities=law == "dirichlet")
    if kind == "gem":  # the same in all layers
        betas, temperatures = (4.0,) * 3, (1.5,) * 3
        method = unem.create_method(name, class_balance=4.0, temperature=1.5, feature_scale=scale, iterations=3)
    else:
        method = unem.create_method(name, schedule=unem.Schedule(betas, temperatures, scale))
    with torch.no_grad():
        u = method.predict(task).probabilities.numpy()
    direct = reference.dirichlet_gem if law == "dirichlet" else reference.gaussian_gem
    for mine, (support, labels, query) in zip(u, each_task(task), strict=True):
        expected = direct(support, labels, query, 4, betas=betas, temperatures=temperatures, scale=scale)
        np.testing.assert_allclose(mine, expected, atol=1e-6)


def clusters(classes, present, tasks=4, queries=60, features=32, noise=1.2, seed=0):
    """Tasks of many classes, few of which have queries."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(tasks, classes, features, generator=g, dtype=torch.float64)
    labels, truth = torch.arange(classes).repeat_interleave(5), torch.arange(queries) % present
    support, query = (
        centres[:, y] + noise * torch.randn(tasks, len(y), features, generator=g, dtype=torch.float64)
        for y in (labels, truth)
    )
    return unem.Task(support, labels.expand(tasks, -1), query), truth


def test_both_ways_to_maximise_information_agree():
    """Closed forms and gradients descend to the same place when they are given the same weights, here the paper's."""
    paper = {"cross_entropy": 0.1, "marginal": 1.0, "conditional": 0.1}
    task, truth = clusters(5, 5, tasks=20, noise=1.8)
    closed = unem.create_method("tim-adm", **paper).predict(task)
    gradient = unem.create_method("tim-gd", **paper, iterations=600, learning_rate=1e-3).predict(task)
    start = unem.create_method("simpleshot", base_mean=torch.zeros(32)).predict(task)
    assert (closed.labels == gradient.labels).double().mean() > 0.95
    assert (closed.labels != start.labels).double().mean() > 0.05  # they went somewhere
    assert (closed.labels == truth).double().mean() > (start.labels == truth).double().mean() + 0.03


def test_the_papers_weights_insist_on_uniform_proportions():
    """With a fifth of the classes present, both ways spread the queries over nearly all; a small weight lets them
    be."""
    task, truth = clusters(20, 4)

    def spread_and_accuracy(name, **options):
        prediction = unem.create_method(name, **options).predict(task)
        share = prediction.probabilities.mean(1)
        spread = -(share * share.clamp_min(1e-300).log()).sum(1).mean() / np.log(20)
        return spread.item(), (prediction.labels == truth).double().mean().item()

    steps = {"iterations": 600, "learning_rate": 1e-3}
    for name, more in (("tim-adm", {}), ("tim-gd", steps)):
        spread, accuracy = spread_and_accuracy(name, cross_entropy=0.1, marginal=1.0, conditional=0.1, **more)
        assert spread > 0.95
        assert accuracy < 0.5
    _, modest = spread_and_accuracy("tim-gd", **steps)
    assert modest > 0.8
