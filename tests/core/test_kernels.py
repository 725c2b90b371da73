"""GPU kernels against their torch forms: on a GPU, or in Triton's interpreter where Triton is installed without one."""

from __future__ import annotations

import os
from contextlib import nullcontext
from itertools import combinations

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

import unem  # noqa: E402
from unem.core.em import iterate  # noqa: E402
from unem.core.numerics import backends, newton, triton_assign, triton_dirichlet, triton_gaussian  # noqa: E402
from unem.core.rows import Rows  # noqa: E402
from unem.learning.unrolled import LEARNABLE  # noqa: E402


def mean_log(dim, rows, spread, seed=1):
    g = torch.Generator().manual_seed(seed)
    samples = (spread * torch.randn(rows, 4, dim, generator=g, dtype=torch.float64)).log_softmax(-1)
    return samples.mean(1).float().to(DEVICE)


def solved(solver, statistic, previous=None, fit=None):
    like = statistic.product
    fit = fit or newton.Fit(
        like.new_full(like.shape, torch.nan), like.new_full(like.shape, torch.nan), like[..., 0] * 0
    )
    solver.solve(statistic, previous, fit)
    return fit


@pytest.mark.parametrize("dim", [2, 7, 33, 100, 397, 1000])
@pytest.mark.parametrize("spread", [0.3, 3.0, 20.0])
def test_dirichlet_solver_and_gradient(dim, spread):
    y = mean_log(dim, 9, spread)
    excess = newton._floor_excess(y)
    exact = solved(newton, newton.Statistic(y.double() - excess.double()))
    found, plain = (solved(solver, newton.Statistic(y)) for solver in (triton_dirichlet, newton))
    for name in ("alpha", "log_normaliser"):
        truth = getattr(exact, name)
        error, allowed = ((getattr(fit, name) - truth).abs() / truth.abs() for fit in (found, plain))
        assert (error <= 10 * allowed + 1e-5 * (1 + exact.alpha.sum(-1).max() / dim)).all()
    torch.testing.assert_close(found.mean_log, y)
    grad, grad_norm = torch.randn_like(y), torch.randn(9, device=DEVICE)
    inputs = (y, found.alpha, grad, grad_norm)
    found_gradient, plain_gradient = (solver.gradient(*inputs) for solver in (triton_dirichlet, newton))
    scale = plain_gradient.abs().amax(-1, keepdim=True)
    assert ((found_gradient - plain_gradient).abs() / scale).max() < 1e-3


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dim", [5, 600])
def test_rows_that_did_not_move_are_left_alone(dim, in_place):
    now = mean_log(dim, 6, 2.0)
    before = solved(triton_dirichlet, newton.Statistic(now.clone()))
    before.alpha.fill_(3.0)
    norm = before.log_normaliser.clone()
    now[[1, 4]] -= 0.3
    mass, sums = torch.rand(6, device=DEVICE) + 1, torch.randn(6, dim, device=DEVICE)
    statistic = newton.Statistic(now * mass.unsqueeze(-1) - sums, sums, mass)
    fit = solved(triton_dirichlet, statistic, before, before if in_place else None)
    moved = torch.tensor([False, True, False, False, True, False], device=DEVICE)
    still = ((fit.mean_log - now).abs() < 1e-5).all(-1)
    assert still.all()
    unmoved = ~moved & (fit.alpha == 3.0).all(-1)
    # ȳ was rounded on its way through sums and mass: a row may count as moved, and is then solved as it should be.
    fresh = solved(newton, newton.Statistic(now))
    assert (fit.log_normaliser[unmoved] == norm[unmoved]).all()
    torch.testing.assert_close(fit.alpha[~unmoved], fresh.alpha[~unmoved], rtol=1e-3, atol=1e-4)


def tables(classes, queries, features, shots, tasks=3):
    g = torch.Generator().manual_seed(0)
    query, support = (torch.randn(200, features, generator=g) + 3 for _ in range(2))
    query_index = torch.randint(200, (tasks, queries), generator=g)
    support_index = torch.randint(200, (tasks, classes * shots), generator=g)
    rows = (Rows(support.to(DEVICE), support_index.to(DEVICE)), Rows(query.to(DEVICE), query_index.to(DEVICE)))
    return unem.Task.drawn(*rows, classes)


@pytest.mark.parametrize(
    ("classes", "queries", "features", "shots"),
    [(20, 75, 512, 5), (5, 16, 40, 1), (64, 80, 70, 2), (30, 96, 32, 3), (50, 40, 33, 1), (2, 3, 5, 4)],
)
def test_gaussian_kernels(classes, queries, features, shots):
    task, law = tables(classes, queries, features, shots), unem.Gaussian(form="gram")
    exact = law.prepare(task.to(torch.float64))
    gram, cross, norms = triton_gaussian.gram_statistics(
        *task.query_rows.indexed(), *task.support_rows.indexed(), classes
    )
    for found, expected in ((gram, exact.gram), (cross, exact.cross), (norms, exact.sum_norms)):
        assert (found - expected).abs().max() < 3e-6 * expected.abs().max()
    balances, temperatures = (1.0, 2.0, 3.0, 1.5), (2.0, 1.5, 1.2, 1.0)
    expected = iterate(law, law.scaled(exact, 0.2), balances, temperatures)
    shots = exact.shots.float()
    u = triton_gaussian.assignments(gram, cross, norms, shots, 0.04, 1e-6, balances, temperatures)
    torch.testing.assert_close(u.double(), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("shape", [(2, 75, 100), (3, 5, 2), (1, 40, 1000)])
@pytest.mark.parametrize("with_prior", [False, True])
def test_e_step_kernel(shape, with_prior):
    logits = 5 * torch.randn(shape, device=DEVICE)
    prior = torch.randn(shape[0], shape[2], device=DEVICE) if with_prior else None
    expected = ((logits + (0 if prior is None else prior.unsqueeze(1))) / 1.7).softmax(-1)
    u, assigned = triton_assign.assign(logits.clone(), prior, 1.7)
    torch.testing.assert_close(u, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(assigned, expected.sum(1), rtol=1e-4, atol=1e-5)


@pytest.fixture
def kernels(monkeypatch):
    """The kernels wherever they would serve on a GPU, in the interpreter too."""
    if DEVICE == "cpu":
        monkeypatch.setattr(backends, "has_triton", lambda t: t.dtype == torch.float32 and backends.allowed())
        monkeypatch.setattr(backends, "_triton_is_there", lambda: True)


def user_task(law, padding=False, tasks=3):
    g = torch.Generator().manual_seed(1)
    labels = torch.arange(4).repeat_interleave(2).expand(tasks, -1).clone()
    if padding:
        labels[1, 1] = -1
    support, query = (torch.rand(tasks, n, 4 if law.name == "dirichlet" else 9, generator=g) for n in (8, 20))
    return unem.Task(support, labels, query).to(DEVICE)


LAWS = [unem.Gaussian(), unem.Dirichlet()]
SCHEDULE = {
    "gaussian": unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.2, 1.0), 3.0),
    "dirichlet": unem.Schedule((1.0, 3.0, 2.0), (1.5, 1.2, 1.0), 8.0),
}


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_batches_of_a_users_own(law, padding, kernels):
    task, schedule = user_task(law, padding), SCHEDULE[law.name]
    with backends.plain_torch():
        plain = unem.gem(task, law, schedule).probabilities
    torch.testing.assert_close(unem.gem(task, law, schedule).probabilities, plain, rtol=0, atol=1e-3)


@pytest.mark.parametrize("learn", [s for n in (1, 2, 3) for s in combinations(LEARNABLE, n)], ids=str)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_gradients_of_whatever_is_learned(law, learn, kernels):
    task, labels = user_task(law), torch.randint(4, (60,), device=DEVICE)
    gradients = []
    for context in (nullcontext(), backends.plain_torch()):
        with context:
            model = unem.UNEM(law, SCHEDULE[law.name], learn=learn, constraints="log").to(DEVICE)
            torch.nn.functional.nll_loss(model(law.prepare(task)).flatten(0, 1), labels).backward()
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients, rtol=2e-3, atol=1e-5)


def test_tables_that_are_not_contiguous(kernels):
    law, wide = unem.Gaussian(), tables(5, 20, 12, 2)
    task = wide.with_features(wide.support[..., :6], wide.query[..., :6])
    transposed = unem.Task.drawn(
        Rows(wide.support_rows.table.T.contiguous().T, wide.support_rows.index), wide.query_rows, 5
    )
    for case in (task, transposed):
        with backends.plain_torch():
            plain = unem.gem(case, law, SCHEDULE["gaussian"]).probabilities
        torch.testing.assert_close(unem.gem(case, law, SCHEDULE["gaussian"]).probabilities, plain, rtol=0, atol=1e-3)


def test_features_that_are_differentiated(kernels):
    task = tables(5, 20, 12, 2)
    table = task.query_rows.table.clone().requires_grad_()
    drawn = unem.Task.drawn(task.support_rows, Rows(table, task.query_rows.index), 5)
    u = unem.gem(drawn, unem.Gaussian(), SCHEDULE["gaussian"]).probabilities
    assert torch.autograd.grad(u[..., 0].sum(), table)[0].abs().max() > 0


@pytest.mark.parametrize("temperature", [0.0, 1e-42])
def test_hard_assignments(temperature, kernels):
    task, schedule = tables(5, 20, 12, 2), unem.Schedule((1.0, 2.0), temperature, 0.3)
    with backends.plain_torch():
        plain = unem.gem(task, unem.Gaussian(), schedule).probabilities
    torch.testing.assert_close(unem.gem(task, unem.Gaussian(), schedule).probabilities, plain, rtol=0, atol=0)
