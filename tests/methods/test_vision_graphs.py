"""Compared methods that are no generalized EM: each against a direct form, one task at a time, or against
scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

import unem
from helpers import reference
from unem import InputError
from unem.methods import method_info

FEW = {
    "tim-gd": {"iterations": 15, "learning_rate": 0.01},
    "tim-adm": {"iterations": 10},
    "alpha-tim": {"iterations": 15, "learning_rate": 0.01},
    "alpha-am": {"iterations": 5, "learning_rate": 0.01, "neighbours": 5},
    "simpleshot": {},
    "logistic": {},
    "label-propagation": {"neighbours": 4},
}
NAMES = sorted(FEW)


def make(name, **options):
    return unem.create_method(name, **(FEW[name] | options))


def padded_task(**kwargs):
    """Tasks whose supports have different sizes, so that the smaller are padded."""
    task = reference.random_task(**kwargs)
    short = unem.Task(task.support[0, :-1], task.support_labels[0, :-1], task.query[0], num_classes=task.num_classes)
    return unem.Task.stack([short, *(task[i] for i in range(1, len(task)))])


def each_task(task):
    """Numpy support, labels and query of every task, without padding."""
    for support, labels, query in zip(task.support, task.support_labels, task.query, strict=True):
        there = labels >= 0
        yield support[there].numpy(), labels[there].numpy(), query.numpy()


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def means(support, labels, classes):
    return np.stack([support[labels == k].mean(0) for k in range(classes)])


def check(task, method, direct, atol=1e-8):
    expected = np.stack([direct(*arrays, task.num_classes) for arrays in each_task(task)])
    np.testing.assert_allclose(method.predict(task).probabilities.numpy(), expected, atol=atol)


# -- the direct forms
# ------------------------------------------------------------------------------------------------------


def tsallis(p, alpha):
    return -(p * p.log()).sum(-1) if alpha == 1 else (1 - (p**alpha).sum(-1)) / (alpha - 1)


def information_loss(p_support, p_query, labels, weights, alphas):
    cross_entropy = -torch.stack([p[y].log() for p, y in zip(p_support, labels, strict=True)]).mean()
    marginal, conditional = tsallis(p_query.mean(0), alphas[0]), tsallis(p_query, alphas[1]).mean()
    return weights[0] * cross_entropy - weights[1] * marginal + weights[2] * conditional


def near(z, w, temperature=15.0):
    return torch.softmax(-0.5 * temperature * ((z[:, None] - w[None]) ** 2).sum(-1), -1)


def descend(parameters, loss, steps, rate):
    optimiser = torch.optim.Adam(parameters, lr=rate)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss()
        value.backward()
        optimiser.step()
        losses.append(value.item())
    return losses


def tim_by_autograd(weights, alphas):
    def direct(support, labels, query, classes):
        support, query = torch.tensor(unit(support)), torch.tensor(unit(query))
        w = torch.tensor(means(support.numpy(), labels, classes), requires_grad=True)

        def loss():
            return information_loss(near(support, w), near(query, w), labels, weights, alphas)

        descend([w], loss, 15, 0.01)
        return near(query, w).detach().numpy()

    return direct


def tim_adm_by_loops(support, labels, query, classes, lam=0.1, alpha=0.1, temperature=15.0):
    support, query = unit(support), unit(query)
    w = means(support, labels, classes)

    def p_of(z):
        return softmax(-0.5 * temperature * ((z[:, None] - w[None]) ** 2).sum(-1), axis=1)

    for _ in range(10):
        p_s, p_q = p_of(support), p_of(query)
        q = p_q ** (1 + alpha) / np.sqrt((p_q ** (1 + alpha)).sum(0))
        q /= q.sum(1, keepdims=True)
        new = np.zeros_like(w)
        a, b = lam / (1 + alpha), len(support) / len(query)
        for k in range(classes):
            top, bottom = np.zeros(w.shape[1]), 0.0
            for z, y, p in zip(support, labels, p_s[:, k], strict=True):
                top += a * ((y == k) * z + p * (w[k] - z))
                bottom += a * (y == k)
            for z, u, p in zip(query, q[:, k], p_q[:, k], strict=True):
                top += b * (u * z + p * (w[k] - z))
                bottom += b * u
            new[k] = top / bottom
        w = new
    return p_of(query)


def manifold_by_autograd(support, labels, query, classes, alpha=0.9, order=5, neighbours=5):
    """As published: the gain starts at α, and what is seen before the last step is the answer."""
    support, query = torch.tensor(unit(support)), torch.tensor(unit(query))
    w = torch.tensor(means(support.numpy(), labels, classes), requires_grad=True)
    size = classes + len(support) + len(query)
    rate, gain = (torch.full((size, size), at, dtype=torch.float64, requires_grad=True) for at in (1.0, alpha))

    def probabilities():
        v = torch.cat([w, support, query])
        apart = (v[:, None] - v[None]).square().sum(-1)
        distance = torch.where(apart > 0, apart.clamp_min(1e-300).sqrt(), 0.0)
        affinity = torch.exp(-rate * distance / distance.std())
        keep = torch.zeros(size, size, dtype=torch.float64)
        for i in range(classes, size):
            others = [j for j in affinity[i].argsort(descending=True).tolist() if j != i]
            keep[i, others[:neighbours]] = 1
        affinity = gain * (keep * affinity + (keep * affinity).T) / 2
        half = torch.diag(affinity.sum(1) ** -0.5)
        eye = torch.eye(size, dtype=torch.float64)
        p = (15 * torch.inverse(eye - alpha * half @ affinity @ half)[classes:, :classes]).softmax(-1)
        return p[: len(support)], p[len(support) :]

    descend([w, rate, gain], lambda: information_loss(*probabilities(), labels, (1, 1, 1), (order, order)), 4, 0.01)
    return probabilities()[1].detach().numpy()


# -- agreement
# -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "weights", "alphas"), [("tim-gd", (1, 0.3, 1), (1, 1)), ("alpha-tim", (1, 1, 1), (7, 5))]
)
def test_tim_is_adam_on_the_papers_objective(name, weights, alphas):
    check(padded_task(), make(name), tim_by_autograd(weights, alphas))


@given(marginal=st.floats(0, 3), conditional=st.floats(0, 3), alphas=st.tuples(*[st.floats(0.3, 8)] * 2))
@settings(max_examples=10)
def test_alpha_tim_for_any_weights(marginal, conditional, alphas):
    orders = {"marginal_alpha": alphas[0], "conditional_alpha": alphas[1]}
    method = make("alpha-tim", marginal=marginal, conditional=conditional, **orders)
    direct = tim_by_autograd((1, marginal, conditional), [1 if abs(a - 1) < 1e-4 else a for a in alphas])
    check(
        reference.random_task(tasks=1), method, direct, atol=1e-3
    )  # Adam divides what is nearly 0 by what is nearly 0


def test_tim_adm_has_the_papers_updates():
    check(padded_task(), make("tim-adm"), tim_adm_by_loops)


def test_adaptive_manifold_is_adam_on_its_objective():
    check(padded_task(), make("alpha-am"), manifold_by_autograd, atol=1e-7)


def test_adaptive_manifold_has_other_settings_for_one_shot():
    many = reference.random_task(tasks=2, queries=30)
    first = [int((many.support_labels[0] == k).nonzero()[0]) for k in range(many.num_classes)]
    task = unem.Task(many.support[:, first], torch.arange(many.num_classes).expand(2, -1), many.query)

    def direct(*task):
        return manifold_by_autograd(*task, alpha=0.8, order=2, neighbours=100)

    # All neighbours: a centroid and its one sample are equally far from everybody, so that a choice would be arbitrary.
    method = unem.create_method("alpha-am", iterations=5, learning_rate=0.01, neighbours=100)
    check(task, method, direct, atol=1e-7)
    mixed = unem.Task.stack([task[0], many[1]])
    torch.testing.assert_close(method.predict(mixed).probabilities[:1], method.predict(task[:1]).probabilities)
    few = unem.create_method("alpha-am", iterations=1)
    told = unem.create_method("alpha-am", iterations=1, neighbours=20)
    assert torch.equal(few.predict(task).probabilities, told.predict(task).probabilities)


@pytest.mark.parametrize("given_mean", [False, True])
def test_simpleshot(given_mean):
    base = torch.randn(5, dtype=torch.float64) if given_mean else None

    def direct(support, labels, query, classes):
        centre = base.numpy() if given_mean else support.mean(0)
        support, query = unit(support - centre), unit(query - centre)
        w = means(support, labels, classes)
        return softmax(-0.5 * ((query[:, None] - w) ** 2).sum(-1), axis=1)

    check(padded_task(), make("simpleshot", base_mean=base), direct)
    assert (make("simpleshot", base_mean=base).describe()["base_mean"] is not None) == given_mean


@pytest.mark.parametrize("features", [3, 40])
@given(C=st.floats(0.01, 100))
@settings(max_examples=8)
def test_logistic_is_sklearns(features, C):
    from sklearn.linear_model import LogisticRegression

    def direct(support, labels, query, classes):
        model = LogisticRegression(C=C, tol=1e-10, max_iter=5000)
        return model.fit(unit(support), labels).predict_proba(unit(query))

    check(padded_task(features=features), make("logistic", C=C), direct, atol=2e-5)


@given(C=st.floats(1e-3, 1e3), seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_logistic_in_single_precision(C, seed):
    """Tasks that are solved rest while others go on."""
    task = reference.random_task(tasks=30, seed=seed)
    exact = make("logistic", C=C).predict(task).probabilities
    single = make("logistic", C=C).predict(task.to(torch.float32)).probabilities
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=5e-3)


@pytest.mark.parametrize("neighbours", [0, 4])
@given(alpha=st.floats(0.05, 0.95), gamma=st.floats(0.1, 5))
@settings(max_examples=8)
def test_label_propagation_is_sklearns(neighbours, alpha, gamma):
    from sklearn.semi_supervised import LabelSpreading

    def kernel(a, b):
        weight = np.exp(-gamma * ((a[:, None] - b[None]) ** 2).sum(-1))
        np.fill_diagonal(weight, 0)
        if neighbours:
            cut = np.sort(weight, 1)[:, -neighbours][:, None]
            weight = np.where(weight >= cut, weight, 0)
        return (weight + weight.T) / 2

    def direct(support, labels, query, classes):
        model = LabelSpreading(kernel=kernel, alpha=alpha, max_iter=5000, tol=1e-14)
        model.fit(unit(np.concatenate([support, query])), np.concatenate([labels, np.full(len(query), -1)]))
        return model.label_distributions_[len(support) :]

    task = padded_task(queries=20)
    with np.errstate(invalid="ignore"):
        result = make("label-propagation", alpha=alpha, gamma=gamma, neighbours=neighbours).predict(task)
        expected = np.stack([direct(*arrays, 4) for arrays in each_task(task)])
    reached = np.isfinite(expected).all(-1) & (expected.sum(-1) > 0.5)
    np.testing.assert_allclose(result.probabilities.numpy()[reached], expected[reached], atol=1e-6)
    np.testing.assert_allclose(result.probabilities.numpy()[~reached], 0.25)


# -- what must hold
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tim-gd", "alpha-tim"])
def test_objectives_decrease(name):
    """torch's Adam on ``objective`` goes down at every step, and ends where the method's closed-form gradient does."""
    task = reference.random_task(tasks=1)
    method = make(name)
    support, labels, query = next(each_task(task))
    w = torch.tensor(means(unit(support), labels, 4))[None].requires_grad_()
    losses = descend([w], lambda: method.objective(task, w).sum(), 60, 1e-3)
    assert (np.diff(losses) < 0).all()
    weights = (method.cross_entropy, method.marginal, method.conditional)
    alphas = (method.marginal_alpha, method.conditional_alpha)
    p_support, p_query = (near(torch.tensor(unit(z)), w[0]) for z in (support, query))
    direct = information_loss(p_support, p_query, labels, weights, alphas)
    torch.testing.assert_close(method.objective(task, w)[0], direct)
    after = make(name, iterations=60, learning_rate=1e-3).predict(task).probabilities[0]
    torch.testing.assert_close(after, p_query.detach())


def test_tim_adm_gains_information():
    task = reference.random_task(tasks=5, queries=40)

    def information(iterations):
        p = make("tim-adm", iterations=iterations).predict(task).probabilities
        return tsallis(p.mean(1), 1) - 0.1 * tsallis(p, 1).mean(1)

    assert (information(100) > information(1)).all()


def test_alpha_tim_tends_to_tim():
    task = reference.random_task()
    tim = make("tim-gd", marginal=1.0)
    w = torch.randn(3, 4, 5, dtype=torch.float64)
    for distance in (1e-3, 1e-6, 1e-9, 0.0):
        for alpha in (1 - distance, 1 + distance):
            limit = make("alpha-tim", marginal_alpha=alpha, conditional_alpha=alpha)
            difference = (limit.objective(task, w) - tim.objective(task, w)).abs().max()
            assert difference <= 10 * distance + 1e-12
            change = (limit.predict(task).probabilities - tim.predict(task).probabilities).abs().max()
            assert change <= 100 * distance + 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_batched_equals_one_by_one(name):
    task = padded_task(tasks=4)
    whole = make(name).predict(task).probabilities
    parts = [make(name).predict(unem.Task(*map(torch.tensor, one), num_classes=4)) for one in each_task(task)]
    torch.testing.assert_close(torch.stack([p.probabilities for p in parts]), whole, rtol=0, atol=1e-8)


def test_parts_change_nothing(monkeypatch):
    task = reference.random_task(tasks=5)
    whole = [make(name).predict(task).probabilities for name in NAMES]
    monkeypatch.setattr("unem.core.memory.NUMBERS_AT_ONCE", {"cpu": 1})
    for name, expected in zip(NAMES, whole, strict=True):
        torch.testing.assert_close(make(name).predict(task).probabilities, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_order_of_queries_and_classes_does_not_matter(name):
    task = reference.random_task()
    u = make(name).predict(task).probabilities
    order = torch.randperm(task.num_queries)
    shuffled = task.with_features(task.support, task.query[:, order])
    torch.testing.assert_close(make(name).predict(shuffled).probabilities, u[:, order], rtol=0, atol=1e-8)
    classes = torch.randperm(4)
    renamed = unem.Task(task.support, classes[task.support_labels], task.query)
    torch.testing.assert_close(make(name).predict(renamed).probabilities[..., classes], u, rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_easy_tasks_are_solved(name, dtype):
    g = torch.Generator().manual_seed(1)
    centres = torch.randn(3, 5, 32, generator=g, dtype=torch.float64)
    present = 5 if name == "tim-adm" else 3  # with its published weights it insists on classes of one size
    labels, truth = torch.arange(5).repeat_interleave(3).expand(3, -1), (torch.arange(40) % present).expand(3, -1)

    def around(y):
        mean = centres.gather(1, y.unsqueeze(-1).expand(-1, -1, 32))
        return mean + 0.4 * torch.randn(mean.shape, generator=g, dtype=torch.float64)

    task = unem.Task(around(labels).to(dtype), labels, around(truth).to(dtype))
    with torch.inference_mode():
        inside = make(name).predict(task)
    assert inside.probabilities.dtype == dtype
    assert not inside.probabilities.requires_grad
    assert (inside.labels == truth).double().mean() > 0.98
    torch.testing.assert_close(inside.probabilities.sum(-1), torch.ones(3, 40, dtype=dtype))
    with torch.no_grad():
        again = make(name).predict(task).probabilities
    assert torch.equal(again, inside.probabilities)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", NAMES)
def test_both_devices_agree(name):
    task = padded_task()
    there = make(name).predict(task.to("cuda")).probabilities
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), make(name).predict(task).probabilities, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_default_settings_and_tiny_tasks(name):
    """One class, one sample of it, one query; and more neighbours asked for than there are."""
    options = {k: v for k, v in FEW[name].items() if k == "iterations"}
    task = unem.Task(torch.randn(1, 3), torch.tensor([0]), torch.randn(1, 3))
    assert make(name, **options).predict(task).probabilities.tolist() == [[1.0]]
    for query in (torch.zeros(2, 3), torch.ones(2, 3)):  # alike in everything
        two = unem.Task(torch.ones(2, 3), torch.tensor([0, 1]), query)
        u = unem.create_method(name, **options).predict(two).probabilities
        torch.testing.assert_close(u, torch.full((2, 2), 0.5), rtol=0, atol=2e-3)  # Adam makes steps of rounding


BAD = {
    "tim-gd": {"iterations": [0, -3], "temperature": [0.0, float("nan")], "marginal": [-1.0], "learning_rate": [0.0]},
    "tim-adm": {"iterations": [0], "cross_entropy": [0.0], "conditional": [-0.1, float("inf")]},
    "alpha-tim": {"marginal_alpha": [0.0, -2.0], "conditional_alpha": [float("inf")]},
    "alpha-am": {"alpha": [1.0, -0.5], "neighbours": [0], "temperature": [-1.0], "conditional_alpha": [0.0]},
    "simpleshot": {"feature_scale": [0.0], "base_mean": [3.0]},
    "logistic": {"C": [0.0, -1.0, float("inf")], "max_iterations": [0]},
    "label-propagation": {"alpha": [1.0, -0.1], "gamma": [0.0], "neighbours": [-1, 2.5]},
}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [(n, o, v) for n, options in BAD.items() for o, values in options.items() for v in values],
)
def test_bad_settings_are_named(name, option, value):
    with pytest.raises(InputError, match=option):
        unem.create_method(name, **{option: value})


def test_a_base_mean_of_another_size_is_refused():
    with pytest.raises(InputError, match="base_mean"):
        make("simpleshot", base_mean=torch.zeros(7)).predict(reference.random_task())


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_described(name):
    assert set(make(name).describe()) >= set(method_info(name).options)
