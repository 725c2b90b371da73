"""The one loop: special cases coincide with what they should be, the objective decreases, batches do not matter."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers import reference
from unem.core.rows import Rows


def one_by_one(task, reference_gem, classes, **kwargs):
    return np.stack(
        [reference_gem(s.numpy(), y.numpy(), q.numpy(), classes, **kwargs)
         for s, y, q in zip(task.support, task.support_labels, task.query, strict=True)]
    )  # fmt: skip


@given(
    seed=st.integers(0, 10**6),
    tasks=st.integers(1, 4),
    classes=st.integers(1, 6),
    shots=st.integers(1, 4),
    queries=st.integers(1, 20),
    features=st.integers(1, 9),
    scale=st.floats(0.1, 3),
    layers=st.lists(st.tuples(st.floats(0, 8), st.floats(0.3, 5)), min_size=1, max_size=6),
)
def test_gaussian_gem_equals_the_direct_form(seed, tasks, classes, shots, queries, features, scale, layers):
    task = reference.random_task(tasks, classes, shots, queries, features, seed)
    betas, temperatures = zip(*layers, strict=True)
    result = unem.gem(task, unem.Gaussian(), unem.Schedule(betas, temperatures, scale)).probabilities
    expected = one_by_one(task, reference.gaussian_gem, classes, betas=betas, temperatures=temperatures, scale=scale)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-8)
    for form in ("gram", "direct"):
        again = unem.gem(task, unem.Gaussian(form=form), unem.Schedule(betas, temperatures, scale), trace=True)
        np.testing.assert_allclose(again.probabilities.numpy(), expected, atol=1e-8)


def test_dirichlet_gem_equals_the_direct_form():
    task = reference.random_task(tasks=2, classes=4, queries=15, similarities=True)
    betas, temperatures = (1.0, 2.0, 0.5), (1.5, 1.0, 1.2)
    result = unem.gem(task, unem.Dirichlet(), unem.Schedule(betas, temperatures, 30.0)).probabilities
    expected = one_by_one(task, reference.dirichlet_gem, 4, betas=betas, temperatures=temperatures, scale=30.0)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)


def test_t1_beta1_is_em():
    """Independent EM of a mixture of unit Gaussians with labelled points and free mixing weights."""
    task = reference.random_task(tasks=1, classes=3, shots=3, queries=40, features=2)
    support, labels, query = (t[0].numpy() for t in (task.support, task.support_labels, task.query))
    onehot = np.eye(3)[labels]
    means = onehot.T @ support / onehot.sum(0)[:, None]
    weights = np.full(3, 1 / 3)
    for _ in range(12):
        density = np.stack([np.exp(-0.5 * ((query - m) ** 2).sum(1)) / (2 * np.pi) for m in means], 1)
        u = weights * density
        u /= u.sum(1, keepdims=True)
        means = (onehot.T @ support + u.T @ query) / (onehot.sum(0) + u.sum(0))[:, None]
        weights = u.mean(0)
    law = unem.Gaussian(proportion_floor=1e-300)
    result = unem.gem(task, law, unem.Schedule(1.0, 1.0, layers=12)).probabilities[0]
    np.testing.assert_allclose(result.numpy(), u, atol=1e-10)


def test_without_support_influence_em_is_sklearns():
    """scikit-learn's mixture, one EM step at a time from the same weights and means, spherical covariance held at 1."""
    from sklearn.mixture import GaussianMixture

    task = reference.random_task(tasks=1, classes=3, shots=1, queries=200, features=2)
    trace = unem.gem(task, unem.Gaussian(1e-300), unem.Schedule(1.0, 1.0, layers=4), trace=True).trace
    u = trace.assignments[2, 0].numpy()  # layer 3 starts from these
    support, labels, query = (t[0].numpy() for t in (task.support, task.support_labels, task.query))
    onehot = np.eye(3)[labels]
    mixture = GaussianMixture(3, covariance_type="spherical")
    mixture.weights_ = u.mean(0)
    mixture.means_ = (onehot.T @ support + u.T @ query) / (onehot.sum(0) + u.sum(0))[:, None]
    mixture.covariances_ = np.ones(3)
    mixture.precisions_cholesky_ = np.ones(3)
    np.testing.assert_allclose(trace.assignments[3, 0].numpy(), mixture.predict_proba(query), atol=1e-10)


def test_beta0_is_soft_kmeans():
    task = reference.random_task(tasks=1, classes=4, queries=30)
    support, labels, query = (t[0].numpy() for t in (task.support, task.support_labels, task.query))
    onehot, temperature = np.eye(4)[labels], 0.7
    centres = onehot.T @ support / onehot.sum(0)[:, None]
    for _ in range(10):
        u = np.exp(-((query[:, None] - centres) ** 2).sum(-1) / (2 * temperature))
        u /= u.sum(1, keepdims=True)
        weight = np.concatenate([onehot, u])
        centres = weight.T @ np.concatenate([support, query]) / weight.sum(0)[:, None]
    result = unem.create_method("soft-kmeans", temperature=temperature).predict(task).probabilities[0]
    np.testing.assert_allclose(result.numpy(), u, atol=1e-10)


def test_paddle_is_a_schedule_on_scaled_channels():
    task = reference.random_task(tasks=2, classes=4, queries=20)
    scaled = task.with_features(
        task.support / (task.query.amax(1, True) - task.query.amin(1, True)),
        task.query / (task.query.amax(1, True) - task.query.amin(1, True)),
    )
    expected = one_by_one(scaled, reference.gaussian_gem, 4, betas=[1.0] * 100, temperatures=[1.0] * 100, scale=1.0)
    np.testing.assert_allclose(unem.create_method("paddle").predict(task).probabilities.numpy(), expected, atol=1e-9)


@pytest.mark.parametrize("hard", [False, True])
def test_em_dirichlet_is_a_schedule(hard):
    task = reference.random_task(tasks=1, classes=5, shots=3, queries=12, similarities=True)
    method = unem.create_method("hard-em-dirichlet" if hard else "em-dirichlet", effective_classes=2, iterations=4)
    expected = one_by_one(
        task, reference.dirichlet_gem, 5, betas=[2.0] * 4, temperatures=[1.0] * 4, scale=30.0, hard=hard
    )
    np.testing.assert_allclose(method.predict(task).probabilities.numpy(), expected, atol=1e-6)


def test_prototypes_are_the_first_layer():
    task = reference.random_task()
    first = unem.gem(task, unem.Gaussian(), unem.Schedule(3.0, 1.0, layers=5), trace=True).trace.assignments[0]
    torch.testing.assert_close(unem.create_method("prototypes").predict(task).probabilities, first)


LAWS = [unem.Gaussian(), unem.Dirichlet(), unem.Gaussian(1e-15), unem.Gaussian(form="direct")]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 7])
def test_batched_equals_one_by_one(law, batch):
    task = reference.random_task(tasks=7, similarities=law.name == "dirichlet")
    schedule = unem.Schedule((1.0, 4.0, 2.0), (1.5, 1.0, 1.2), 30.0 if law.name == "dirichlet" else 1.0)
    whole = unem.gem(task, law, schedule).probabilities
    parts = [unem.gem(task[i : i + batch], law, schedule).probabilities for i in range(0, 7, batch)]
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-10)


def test_batches_do_not_matter_in_float32_across_solver_chunks():
    """20 tasks of 100 classes are solved in several chunks of rows; one task is solved in one."""
    task = reference.random_task(tasks=20, classes=100, shots=3, queries=20, similarities=True, dtype=torch.float32)
    schedule = unem.Schedule((10.0, 20.0, 20.0), (5.0, 2.0, 1.5), 30.0)
    whole = unem.gem(task, unem.Dirichlet(), schedule).probabilities
    single = torch.cat([unem.gem(t, unem.Dirichlet(), schedule).probabilities for t in task])
    torch.testing.assert_close(single, whole, rtol=0, atol=1e-3)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_float32_agrees_with_float64(law):
    task = reference.random_task(tasks=20, similarities=law.name == "dirichlet")
    schedule = unem.Schedule(1.0, 1.0, 30.0 if law.name == "dirichlet" else 1.0)
    exact = unem.gem(task, law, schedule).probabilities
    single = unem.gem(task.to(torch.float32), law, schedule).probabilities
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=1e-3)


def test_a_large_offset_does_not_hurt_float32():
    task = reference.random_task(tasks=20)
    moved = task.with_features(task.support + 1000, task.query + 1000)
    schedule = unem.Schedule(1.0, 1.0)
    exact = unem.gem(task, unem.Gaussian(), schedule).probabilities
    single = unem.gem(moved.to(torch.float32), unem.Gaussian(), schedule).probabilities
    torch.testing.assert_close(single.double(), exact, rtol=0, atol=5e-2)


def test_queries_may_come_in_any_order():
    task = reference.random_task()
    order = torch.randperm(task.num_queries)
    schedule = unem.Schedule(2.0, 1.1)
    straight = unem.gem(task, unem.Gaussian(), schedule).probabilities
    shuffled = unem.gem(task.with_features(task.support, task.query[:, order]), unem.Gaussian(), schedule).probabilities
    torch.testing.assert_close(shuffled, straight[:, order])


def test_padding_changes_nothing():
    task = reference.random_task(tasks=1)
    labels = torch.cat([task.support_labels, torch.full((1, 3), -1)], 1)
    support = torch.cat([task.support, torch.full((1, 3, 5), 1e6, dtype=torch.float64)], 1)
    padded = unem.Task(support, labels, task.query)
    for law in (unem.Gaussian(), unem.Dirichlet()):
        schedule = unem.Schedule(1.0, 1.0)
        torch.testing.assert_close(
            unem.gem(padded, law, schedule).probabilities, unem.gem(task, law, schedule).probabilities
        )


def test_many_queries_take_the_direct_form():
    """Gram matrices of so many queries would need gigabytes; both forms are the same function."""
    task = reference.random_task(tasks=1, classes=3, queries=30_000, features=4, dtype=torch.float32)
    statistics = unem.Gaussian().prepare(task)
    assert type(statistics).__name__ == "DirectStatistics"
    assert type(unem.Gaussian().prepare(reference.random_task())).__name__ == "GramStatistics"
    labels = unem.gem(task, unem.Gaussian(), unem.Schedule(1.0, 1.0)).labels
    assert labels.shape == (1, 30_000)


@pytest.mark.parametrize("law", [unem.Gaussian(), unem.Gaussian(form="direct"), unem.Dirichlet()], ids=str)
def test_trace_is_equation_1(law):
    task = reference.random_task(tasks=1, classes=3, shots=3, queries=10, similarities=law.name == "dirichlet")
    scale = 20.0 if law.name == "dirichlet" else 1.3
    trace = unem.gem(task, law, unem.Schedule(1.7, 1.4, scale, layers=4), trace=True).trace
    for layer in range(1, 4):
        before, after = (trace.assignments[i, 0].numpy() for i in (layer - 1, layer))
        expected = reference.objective(task, law, after, before, 1.7, 1.4, scale)
        assert trace.objective[layer, 0].item() == pytest.approx(expected, rel=1e-7)
    torch.testing.assert_close(trace.proportions, trace.assignments.mean(2))
    torch.testing.assert_close(trace.objective, trace.likelihood + trace.class_balance + trace.entropy)


@pytest.mark.parametrize("law", [unem.Gaussian(), unem.Dirichlet(), unem.Gaussian(1e-15)], ids=str)
def test_objective_never_increases_on_ten_thousand_tasks(law):
    """Eq. 1 under a constant schedule, from the first assignments on; 10,000 tasks of 20 shapes and schedules."""
    dirichlet = law.name == "dirichlet"
    random = np.random.default_rng(0)
    checked = 0
    for case in range(20):
        task = reference.random_task(
            tasks=500,
            classes=int(random.integers(2, 7)),
            # One shot and no query mass has no Dirichlet maximum (the likelihood grows without bound), so no objective.
            shots=int(random.integers(2 if dirichlet else 1, 4)),
            queries=int(random.integers(1, 15)),
            features=int(random.integers(1, 6)),
            seed=case,
            similarities=dirichlet,
        )
        schedule = unem.Schedule(
            float(random.uniform(0, 8)),
            float(random.uniform(0.2, 4)),
            float(random.uniform(5, 60)) if dirichlet else 1.0,
            8,
        )
        objective = unem.gem(task, law, schedule, trace=True).trace.objective
        increase = (objective[1:] - objective[:-1]) / objective.abs().amax(0).clamp_min(1)
        assert increase.max().item() < 1e-9, (case, schedule)
        checked += len(task)
    assert checked == 10_000


def test_hard_assignments_are_the_limit_of_low_temperature():
    task = reference.random_task(similarities=True)
    hard = unem.gem(task, unem.Dirichlet(), unem.Schedule(1.0, 0.0, 30.0)).probabilities
    cold = unem.gem(task, unem.Dirichlet(), unem.Schedule(1.0, 1e-6, 30.0)).probabilities
    assert set(hard.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(hard, cold)


def test_simplex_of_another_dimension_starts_from_the_support():
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(3).repeat_interleave(4)
    profile = torch.randn(3, 12, generator=generator, dtype=torch.float64)
    support = profile[labels] + 0.3 * torch.randn(12, 12, generator=generator, dtype=torch.float64)
    truth = torch.randint(3, (20,), generator=generator)
    query = profile[truth] + 0.3 * torch.randn(20, 12, generator=generator, dtype=torch.float64)
    task = unem.Task(support, labels, query)
    prediction = unem.gem(task, unem.Dirichlet(), unem.Schedule(1.0, 1.0), trace=True)
    assert (prediction.labels == truth).all()
    log_z = torch.log_softmax(support, -1)
    alpha = np.stack([reference.fit_dirichlet(log_z[labels == k].mean(0).numpy()) for k in range(3)])
    first = torch.distributions.Dirichlet(torch.as_tensor(alpha)).log_prob(query.softmax(-1).unsqueeze(1)).softmax(-1)
    torch.testing.assert_close(prediction.trace.assignments[0, 0], first, rtol=0, atol=1e-6)


def test_a_single_task_needs_no_batch_dimension():
    task = reference.random_task(tasks=1)
    single = unem.Task(task.support[0], task.support_labels[0], task.query[0])
    result = unem.gem(single, unem.Gaussian(), unem.Schedule())
    assert result.probabilities.shape == (12, 4)
    torch.testing.assert_close(result.probabilities, unem.gem(task, unem.Gaussian(), unem.Schedule()).probabilities[0])


def test_schedule_of_another_law_is_refused():
    with pytest.raises(unem.InputError, match="meant for the dirichlet law"):
        unem.gem(reference.random_task(), unem.Gaussian(), unem.Schedule(law="dirichlet"))


@pytest.mark.parametrize("law", [unem.Gaussian(form="direct"), unem.Dirichlet(), unem.Dirichlet(solver="mm")], ids=str)
@pytest.mark.parametrize("temperature", [1.5, 0.0])
def test_queries_in_parts_give_the_same(law, temperature, monkeypatch):
    task = reference.random_task(tasks=2, queries=57, similarities=law.name == "dirichlet")
    schedule = unem.Schedule((1.0, 2.0, 1.5), temperature, 12.0 if law.name == "dirichlet" else 1.0)
    whole = unem.gem(task, law, schedule).probabilities
    parts = []
    original = type(law).log_prob
    monkeypatch.setattr(type(law), "log_prob", lambda *a: parts.append(a[-1]) or original(*a))
    monkeypatch.setattr("unem.core.memory.PART_BYTES", 1024)
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities, whole, rtol=0, atol=1e-12)
    assert len(parts) > 2 * len(schedule.class_balances)  # it was cut, and every part was asked for


def test_the_form_follows_the_number_of_queries():
    few, many = (reference.random_task(tasks=1, classes=4, queries=q, features=8) for q in (60, 700))
    assert type(unem.Gaussian().prepare(few)).__name__ == "GramStatistics"
    assert type(unem.Gaussian().prepare(many)).__name__ == "DirectStatistics"
    schedule = unem.Schedule((1.0, 2.0, 1.5), 1.2)
    direct, gram = (unem.gem(many, unem.Gaussian(form=f), schedule).probabilities for f in ("auto", "gram"))
    torch.testing.assert_close(direct, gram, rtol=0, atol=1e-10)


@pytest.mark.parametrize("law", [unem.Gaussian(), unem.Dirichlet()], ids=str)
def test_a_batch_too_large_for_memory_is_cut(law, monkeypatch):
    task = reference.random_task(tasks=7, similarities=law.name == "dirichlet")
    schedule = unem.Schedule((1.0, 2.0), 1.2, 12.0 if law.name == "dirichlet" else 1.0)
    whole = unem.gem(task, law, schedule).probabilities
    monkeypatch.setattr("unem.core.memory.CPU_BUDGET", 1)
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("law", [unem.Gaussian(), unem.Dirichlet()], ids=str)
def test_drawn_tasks_are_the_tasks_they_stand_for(law):
    g = torch.Generator().manual_seed(0)
    table = torch.rand(50, 6, generator=g, dtype=torch.float64)
    support, query = torch.randint(50, (3, 6 * 2), generator=g), torch.randint(50, (3, 20), generator=g)
    drawn = unem.Task.drawn(Rows(table, support), Rows(table, query), 6)
    labels = torch.arange(6).repeat_interleave(2).expand(3, -1)
    same = unem.Task(table[support], labels, table[query])
    schedule = unem.Schedule((1.0, 2.0), 1.2, 5.0)
    expected = unem.gem(same, law, schedule).probabilities
    torch.testing.assert_close(unem.gem(drawn, law, schedule).probabilities, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(unem.gem(drawn[1:], law, schedule).probabilities, expected[1:], rtol=0, atol=1e-12)
    torch.testing.assert_close(drawn.shots, same.shots)
    torch.testing.assert_close(drawn.class_sums(drawn.support_rows), same.sum_by_class(same.support))


def test_gradients_reach_the_features():
    task = reference.random_task(tasks=1)
    query = task.query.clone().requires_grad_()
    u = unem.gem(task.with_features(task.support, query), unem.Gaussian(), unem.Schedule(1.0, 1.5)).probabilities
    assert torch.autograd.grad(u[..., 0].sum(), query)[0].abs().max() > 0


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_autocast_changes_nothing(law):
    task = reference.random_task(tasks=2, similarities=law.name == "dirichlet", dtype=torch.float32)
    schedule = unem.Schedule(1.0, 1.5, 12.0 if law.name == "dirichlet" else 1.0)
    expected = unem.gem(task, law, schedule).probabilities
    with torch.autocast("cpu", torch.bfloat16):
        found = unem.gem(task, law, schedule).probabilities
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_half_precision_is_refused():
    with pytest.raises(unem.InputError, match="dtype: expected float32 or float64"):
        reference.random_task(tasks=1).to(torch.float16)


def test_a_law_with_a_parameter_of_its_own_is_differentiated():
    class Weighted(unem.Gaussian):
        def log_prob(self, *arguments):
            return self.weight * super().log_prob(*arguments)

    law = Weighted()
    object.__setattr__(law, "weight", torch.tensor(0.7, dtype=torch.float64, requires_grad=True))
    u = unem.gem(reference.random_task(tasks=1), law, unem.Schedule(1.0, 1.5)).probabilities
    assert torch.autograd.grad(u[..., 0].sum(), law.weight)[0] != 0


@pytest.mark.parametrize("law", [unem.Gaussian(form="gram"), unem.Gaussian(form="direct"), unem.Dirichlet()])
def test_a_query_of_weight_two_counts_as_two(law):
    """In the M-step; the proportions do not change when every query is there twice."""
    task = reference.random_task(similarities=law.name == "dirichlet")
    twice = unem.Task(task.support, task.support_labels, torch.cat([task.query, task.query], 1))
    values = {"class_balance": (0.5, 1.0, 1.5), "temperature": 1.5, "law": law.name}
    heavy = unem.gem(task, law, unem.Schedule(**values, query_weight=2.0)).probabilities
    expected = unem.gem(twice, law, unem.Schedule(**values)).probabilities[:, : task.num_queries]
    torch.testing.assert_close(heavy, expected, rtol=0, atol=1e-8)
    light = unem.gem(task, law, unem.Schedule(**values, query_weight=(1.0, 0.1, 0.1))).probabilities
    assert (light - heavy).abs().max() > 1e-3


def test_weighed_queries_have_no_objective():
    with pytest.raises(unem.InputError, match=r"trace: .* query_weight 1"):
        unem.gem(reference.random_task(), unem.Gaussian(), unem.Schedule(query_weight=0.5), trace=True)


def test_the_kernel_of_the_whole_loop_knows_weight_one_only(monkeypatch):
    asked = []
    monkeypatch.setattr(unem.Gaussian, "shortcut", lambda self, *_: asked.append(True))
    unem.gem(reference.random_task(), unem.Gaussian(), unem.Schedule(query_weight=0.5))
    assert not asked
    unem.gem(reference.random_task(), unem.Gaussian(), unem.Schedule())
    assert asked
