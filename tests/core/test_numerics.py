"""Special functions, Dirichlet maximum likelihood, keyed permutations: against scipy, gradcheck and counting."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given
from hypothesis import strategies as st

import unem
from helpers import reference
from unem._io import cache_folder
from unem.core.numerics import backends, compiled, dirichlet, native, newton
from unem.core.numerics.dirichlet import dirichlet_m_step, dirichlet_mle, dirichlet_mm
from unem.core.numerics.permutation import hash64, keyed_permutation, permute, round_keys, uniform
from unem.core.numerics.special import digamma_trigamma
from unem.errors import UnemWarning


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
def test_digamma_trigamma_against_scipy(dtype, tolerance):
    x = torch.logspace(-5, 7, 20_001, dtype=torch.float64).to(dtype)
    psi, psi1 = digamma_trigamma(x)
    expected, expected1 = (scipy.special.polygamma(n, x.double().numpy()) for n in (0, 1))
    assert np.max(np.abs(psi.numpy() - expected) / (1 + np.abs(expected))) < tolerance
    assert np.max(np.abs(psi1.numpy() / expected1 - 1)) < tolerance


def random_mean_log(dim, rows, spread, seed):
    """Statistics of random samples: ``spread`` from nearly identical (degenerate) to nearly one-hot."""
    g = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(rows, 4, dim, generator=g, dtype=torch.float64)
    return logits.log_softmax(-1).mean(1)


@given(dim=st.integers(2, 12), spread=st.floats(0.02, 12), seed=st.integers(0, 10**6))
def test_mle_against_scipy(dim, spread, seed):
    mean_log = random_mean_log(dim, 1, spread, seed)
    found = dirichlet_mle(mean_log).alpha[0].numpy()
    expected = reference.fit_dirichlet(mean_log[0].numpy())

    def value(alpha):
        return (
            scipy.special.gammaln(alpha).sum()
            - scipy.special.gammaln(alpha.sum())
            - ((alpha - 1) * mean_log[0].numpy()).sum()
        )

    # scipy's optimiser stops early on flat, near-degenerate likelihoods: ours must never be worse, and where scipy has
    # converged the parameters agree.
    assert value(found) <= value(expected) + 1e-9 * abs(value(expected))
    residual = digamma_residual(expected, mean_log[0].numpy())
    if residual < 1e-9:
        np.testing.assert_allclose(found, expected, rtol=1e-4)


def digamma_residual(alpha, mean_log):
    return np.abs(scipy.special.digamma(alpha) - scipy.special.digamma(alpha.sum()) - mean_log).max()


@given(dim=st.integers(2, 300), spread=st.floats(0.005, 60), seed=st.integers(0, 10**6))
def test_mle_solves_its_equation(dim, spread, seed):
    mean_log = random_mean_log(dim, 8, spread, seed)
    excess = newton._floor_excess(mean_log)
    alpha = dirichlet_mle(mean_log).alpha.numpy()
    assert (alpha > 0).all()
    residual = max(digamma_residual(a, m) for a, m in zip(alpha, (mean_log - excess).numpy(), strict=True))
    assert residual < 1e-10


@given(dim=st.integers(2, 100), log_scale=st.floats(-2, 3), seed=st.integers(0, 10**6))
def test_mle_recovers_parameters(dim, log_scale, seed):
    g = torch.Generator().manual_seed(seed)
    alpha = torch.exp(log_scale + torch.randn(5, dim, generator=g, dtype=torch.float64))
    mean_log = torch.digamma(alpha) - torch.digamma(alpha.sum(-1, keepdim=True))
    torch.testing.assert_close(dirichlet_mle(mean_log).alpha, alpha, rtol=1e-6, atol=0)
    single = dirichlet_mle(mean_log.float()).alpha.double()
    # float32 cannot do better than the conditioning, about Σα / dim times the rounding of ȳ.
    torch.testing.assert_close(single, alpha, rtol=5e-6 * (10 + float(alpha.sum(-1).max()) / dim), atol=0)


def test_degenerate_statistics_stay_finite_and_are_announced(monkeypatch):
    monkeypatch.setattr("unem.errors._already_said", set())
    mean_log = torch.tensor([[0.5, 0.3, 0.2]]).log()  # one sample: Σ exp ȳ = 1, no maximum
    with pytest.warns(UnemWarning, match="concentration is capped"):
        alpha = dirichlet_mle(mean_log.requires_grad_()).alpha
    assert torch.isfinite(alpha).all()
    assert 1e3 < alpha.sum() < 1e6
    torch.testing.assert_close(alpha / alpha.sum(), mean_log.exp(), rtol=1e-3, atol=0)
    (grad,) = torch.autograd.grad(alpha.log().sum(), mean_log)
    assert torch.isfinite(grad).all()


needs_compiler = pytest.mark.skipif(not native.is_available(), reason="no C compiler here")


@needs_compiler
@given(dim=st.integers(2, 300), spread=st.floats(0.005, 60), seed=st.integers(0, 10**6))
def test_compiled_solver_is_as_exact_as_the_plain_one(dim, spread, seed):
    mean_log = random_mean_log(dim, 8, spread, seed).float()
    excess = newton._floor_excess(mean_log)
    truth = dirichlet_mle(mean_log.double() - excess.double())
    attainable = rounding_error(truth.alpha)
    for solver in (native, newton):
        _, alpha, norm = fit = empty_fit(mean_log)
        solver.solve(newton.Statistic(mean_log), None, fit)
        assert ((alpha - truth.alpha).abs() < 5 * attainable).all()
        terms = torch.lgamma(truth.alpha).abs().sum(-1) + torch.lgamma(truth.alpha.sum(-1)).abs()
        slope = (5 * attainable * mean_log.abs()).sum(-1)  # ∂(−ln B)/∂α = −ȳ
        assert ((norm - truth.log_normaliser).abs() < slope + 1e-6 * (1 + terms)).all()


def rounding_error(alpha):
    """What rounding each term of the equation to float32 does to α: ``J⁻¹`` applied to the largest such error."""
    total = alpha.sum(-1, keepdim=True)
    (psi, psi1), (psi_total, psi1_total) = digamma_trigamma(alpha), digamma_trigamma(total)
    error = torch.finfo(torch.float32).eps * (1 + psi.abs() + psi_total.abs())
    w = 1 / psi1
    coupling = psi1_total * (w * error).sum(-1, keepdim=True) / (1 - psi1_total * w.sum(-1, keepdim=True))
    return w * error + w * coupling


@needs_compiler
@given(dim=st.integers(2, 70), spread=st.floats(0.3, 10), seed=st.integers(0, 10**6))
def test_compiled_gradient_equals_the_plain_one(dim, spread, seed):
    mean_log = random_mean_log(dim, 6, spread, seed).float()
    _, alpha, _ = fit = empty_fit(mean_log)
    native.solve(newton.Statistic(mean_log), None, fit)
    grad, grad_norm = torch.randn_like(mean_log), torch.randn(6)
    double = newton.gradient(*(t.double() for t in (mean_log, alpha, grad, grad_norm)))
    free = (newton._floor_excess(mean_log) == 0).squeeze(-1)  # float64 has another floor
    scale = double.abs().amax(-1, keepdim=True) * (1 + alpha.sum(-1, keepdim=True) / dim)
    for solver in (native, newton):
        found = solver.gradient(mean_log, alpha, grad, grad_norm)
        assert (((found - double).abs() / scale)[free] < 1e-4).all()
        assert torch.isfinite(found).all()


def empty_fit(mean_log):
    return newton.Fit(torch.empty_like(mean_log), torch.empty_like(mean_log), mean_log.new_empty(mean_log.shape[:-1]))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("solver", [pytest.param(native, marks=needs_compiler), newton])
def test_rows_that_did_not_move_are_not_solved_again(solver, in_place):
    mean_log = random_mean_log(7, 6, 2.0, seed=5).float()
    before = empty_fit(mean_log)
    solver.solve(newton.Statistic(mean_log), None, before)
    before.alpha.fill_(3.0)  # a wrong solution: it must survive where nothing moved
    norm = before.log_normaliser.clone()
    sums, mass, now = torch.randn(6, 7), torch.rand(6) + 1, mean_log.clone()
    now[[1, 4]] -= 0.3
    product = now * mass.unsqueeze(-1) - sums
    fit = before if in_place else empty_fit(mean_log)
    solver.solve(newton.Statistic(product, sums, mass), before, fit)
    still, moved = torch.tensor([0, 2, 3, 5]), torch.tensor([1, 4])
    assert (fit.alpha[still] == 3.0).all()
    assert (fit.log_normaliser[still] == norm[still]).all()
    torch.testing.assert_close(fit.mean_log, now, rtol=1e-5, atol=1e-6)
    fresh = dirichlet_mle(now)
    torch.testing.assert_close(fit.alpha[moved], fresh.alpha[moved], rtol=1e-4, atol=0)
    torch.testing.assert_close(fit.log_normaliser[moved], fresh.log_normaliser[moved], rtol=1e-4, atol=1e-4)


def test_the_m_step_is_the_fit_of_the_weighted_mean():
    g = torch.Generator().manual_seed(0)
    sums = -torch.rand(2, 3, 5, generator=g, dtype=torch.float64) * 9
    values = torch.randn(2, 8, 5, generator=g, dtype=torch.float64).log_softmax(-1)
    weights = torch.rand(2, 8, 3, generator=g, dtype=torch.float64)
    mass = torch.rand(2, 3, generator=g, dtype=torch.float64) + 4
    inputs = [t.requires_grad_() for t in (sums, weights, values, mass)]
    expected = dirichlet_mle((sums + weights.mT @ values) / mass.unsqueeze(-1))
    for found, wanted in zip(dirichlet_m_step(*inputs), expected, strict=True):
        torch.testing.assert_close(found, wanted)
    assert torch.autograd.gradcheck(lambda *t: dirichlet_m_step(*t)[1:], inputs)


def test_without_a_compiler_the_plain_solver_serves(monkeypatch, tmp_path):
    mean_log = random_mean_log(9, 5, 1.0, seed=6).float()
    here = dirichlet_mle(mean_log).alpha
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    native.COMPILED.forget()
    try:
        assert not native.is_available()
        torch.testing.assert_close(dirichlet_mle(mean_log).alpha, here, rtol=1e-4, atol=0)
    finally:
        native.COMPILED.forget()


@needs_compiler
def test_the_compiled_solver_is_cached_and_a_broken_compiler_is_survived(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    native.COMPILED.forget()
    try:
        assert native.is_available()
        (made,) = (tmp_path / "cache" / "unem").iterdir()
        stamp = made.stat().st_mtime_ns
        native.COMPILED.forget()
        assert native.is_available()
        assert made.stat().st_mtime_ns == stamp
        broken = tmp_path / "broken"
        broken.write_text("#!/bin/sh\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
        monkeypatch.setenv("CC", str(broken))
        native.COMPILED.forget()
        assert native.is_available()  # the next compiler serves
        monkeypatch.setattr(compiled, "_compilers", lambda: [(str(broken),)])
        native.COMPILED.forget()
        assert not native.is_available()
    finally:
        native.COMPILED.forget()


@needs_compiler
@pytest.mark.parametrize("mask", [0o002, 0o077])
def test_any_umask_and_compilers_with_arguments(mask, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", "env cc")
    before = os.umask(mask)
    try:
        native.COMPILED.forget()
        assert native.is_available()
    finally:
        os.umask(before)
        native.COMPILED.forget()


@needs_compiler
@pytest.mark.parametrize("keep", [0, 4096, 9000])
def test_a_library_that_was_cut_short_is_made_again(keep, monkeypatch, tmp_path):
    """Loading one would end the process; its name says what its content must be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compilers = compiled._compilers()
    made = native.COMPILED.compiled(compilers[0], _made(tmp_path / "unem"))
    whole = made.read_bytes()
    made.write_bytes(whole[:keep])
    again = native.COMPILED.compiled(compilers[0], tmp_path / "unem")
    assert again.read_bytes() != whole[:keep]
    assert native.COMPILED.load(again) is not None
    stamp = again.stat().st_mtime_ns
    assert native.COMPILED.compiled(compilers[0], tmp_path / "unem").stat().st_mtime_ns == stamp


@needs_compiler
def test_a_cache_folder_that_others_may_write_to_is_closed_to_them(monkeypatch, tmp_path):
    """Features make it first, under a umask of 002; it must not be compiled anew in every process for that."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _made(tmp_path / "unem").chmod(0o775)
    assert compiled._cache_folder() == tmp_path / "unem"
    assert (tmp_path / "unem").stat().st_mode & 0o777 == 0o755


def test_a_user_without_a_home_gets_a_folder_for_the_process(monkeypatch):
    """As in containers: HOME is not set, and the user is not in the list of users."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    assert cache_folder() is None
    with compiled._cache_folder() as folder:
        assert Path(folder).is_dir()
    assert not Path(folder).exists()


def _made(folder):
    folder.mkdir()
    return folder


def _no_home():
    raise RuntimeError("Could not determine home directory.")


@needs_compiler
def test_several_threads_want_it_first(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    native.COMPILED.forget()
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda _: native.is_available(), range(8)))
    finally:
        native.COMPILED.forget()


@needs_compiler
def test_an_unusable_cache_folder_leaves_nothing_behind(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    native.COMPILED.forget()
    try:
        assert native.is_available()
        assert [p.name for p in tmp_path.iterdir()] == ["file"]
    finally:
        native.COMPILED.forget()


def test_plain_torch_is_a_matter_of_the_thread():
    with backends.plain_torch():
        assert not backends.allowed()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(backends.allowed).result()
    assert backends.allowed()


@pytest.mark.parametrize("solver", [pytest.param(native, marks=needs_compiler), newton])
def test_small_moves_add_up(solver):
    """A row is solved again when it has moved from what it was solved for, not from the layer before."""
    mean_log = random_mean_log(6, 2, 1.0, seed=7).float()
    fit = empty_fit(mean_log)
    solver.solve(newton.Statistic(mean_log.clone()), None, fit)
    first = fit.alpha.clone()
    for step in range(1, 30):
        after = empty_fit(mean_log)
        solver.solve(newton.Statistic(mean_log - step * 5e-7), fit, after)
        fit = after
    assert (fit.alpha != first).all()


def test_a_fit_of_ones_own_is_not_overwritten():
    g = torch.Generator().manual_seed(0)
    mean_log = random_mean_log(5, 3, 1.0, seed=8).float().expand(2, 3, 5)
    mine = dirichlet_mle(mean_log)
    sums, values = -torch.rand(2, 3, 5, generator=g) * 9, torch.randn(2, 8, 5, generator=g).log_softmax(-1)
    weights, mass = torch.rand(2, 8, 3, generator=g), torch.rand(2, 3, generator=g) + 4
    copy = mean_log.clone()
    with torch.no_grad():
        dirichlet_m_step(sums, weights, values, mass, mine)
    torch.testing.assert_close(mean_log, copy, rtol=0, atol=0)
    with pytest.raises(unem.InputError, match="previous: expected a fit of shape"):
        dirichlet_m_step(sums, weights, values, mass, dirichlet_mle(mean_log[0]))


def test_a_gradient_already_under_way_is_not_disturbed():
    mean_log = random_mean_log(5, 6, 1.0, seed=9).float().view(2, 3, 5).requires_grad_()
    fit = dirichlet_mle(mean_log)
    (expected,) = torch.autograd.grad(fit.alpha.sum(), mean_log, retain_graph=True)
    with torch.no_grad():
        dirichlet_m_step(
            mean_log.detach() * 5,
            torch.rand(2, 8, 3),
            torch.randn(2, 8, 5).log_softmax(-1),
            torch.full((2, 3), 9.0),
            fit,
        )
    torch.testing.assert_close(torch.autograd.grad(fit.alpha.sum(), mean_log)[0], expected)


def test_implicit_gradient():
    mean_log = random_mean_log(6, 5, 1.5, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: dirichlet_mle(y)[1:], (mean_log,))


def test_implicit_gradient_of_the_floor(monkeypatch):
    monkeypatch.setitem(newton.DISPERSION_FLOOR, torch.float64, 0.05)
    mean_log = (random_mean_log(5, 4, 0.05, seed=2)).requires_grad_()
    assert (newton._floor_excess(mean_log) > 0).all()
    assert torch.autograd.gradcheck(lambda y: dirichlet_mle(y)[1:], (mean_log,))


def test_gradient_of_the_mm_iterations(monkeypatch):
    monkeypatch.setattr(dirichlet, "MM_MAX_STEPS", 7)
    mean_log = random_mean_log(5, 3, 1.0, seed=3).requires_grad_()
    start = (torch.rand(3, 5, dtype=torch.float64) + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(dirichlet_mm, (mean_log, start))


def test_mm_converges_to_the_mle():
    mean_log = random_mean_log(8, 20, 1.0, seed=4)
    torch.testing.assert_close(
        dirichlet_mm(mean_log, torch.ones_like(mean_log)), dirichlet_mle(mean_log).alpha, rtol=1e-3, atol=0
    )


@given(size=st.integers(1, 700), seed=st.integers(-(2**70), 2**70))
def test_keyed_permutation_is_a_permutation(size, seed):
    image = keyed_permutation(torch.arange(size), size, hash64(seed))
    assert image.sort().values.tolist() == list(range(size))


@given(
    key=st.integers(-(2**63), 2**63 - 1),
    size=st.integers(1, 2**33 - 1),
    share=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=5),
)
def test_keyed_permutation_is_that_of_plain_integers(key, size, share):
    position = [int(s * size) for s in share]
    expected = [reference.swap_or_not(x, size, key) for x in position]
    for given_size in (size, torch.tensor(size)):
        assert keyed_permutation(torch.tensor(position), given_size, torch.tensor(key)).tolist() == expected


@given(values=st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=4))
def test_hash_is_that_of_plain_integers(values):
    assert hash64(*values).item() % 2**64 == reference.hash_of(*values)


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 2**40))
def test_positions_may_name_their_key(sizes, seed):
    size = torch.tensor(sizes)
    key = hash64(seed, torch.arange(len(sizes)))
    which = torch.arange(len(sizes)).repeat_interleave(size)
    position = torch.cat([torch.arange(n) for n in sizes])
    together = permute(position, round_keys(key, size), which)
    apart = [keyed_permutation(torch.arange(n), n, k) for n, k in zip(sizes, key, strict=True)]
    assert torch.equal(together, torch.cat(apart))


@pytest.mark.parametrize(("size", "drawn"), [(4, 4), (5, 3), (10, 2), (30, 2)])
def test_keyed_permutation_is_uniform(size, drawn):
    """χ² of all ordered outcomes, at five standard deviations."""
    trials = 100_000
    image = keyed_permutation(torch.arange(drawn), size, hash64(1, torch.arange(trials).unsqueeze(1)))
    code = (image * size ** torch.arange(drawn)).sum(1)
    outcomes = int(scipy.special.poch(size - drawn + 1, drawn))
    counts = torch.bincount(code)
    counts = torch.nn.functional.pad(counts[counts > 0], (0, outcomes - int((counts > 0).sum())))
    expected = trials / outcomes
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2 - (outcomes - 1)) < 5 * np.sqrt(2 * (outcomes - 1))


def test_hashes_depend_on_every_argument_and_their_order():
    values = {hash64(*key).item() for key in [(1, 2, 3), (3, 2, 1), (1, 2), (1, 2, 4), (2, 2, 3), (0, 1, 2, 3)]}
    assert len(values) == 6


def test_uniform_is_uniform():
    u = uniform(hash64(9, torch.arange(100_000)))
    assert u.min() > 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 0.005
    assert abs(u.var() - 1 / 12) < 0.002
