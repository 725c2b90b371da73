"""Supports with more samples of some classes than of others, and what is known where few can be held out."""

from __future__ import annotations

import math

import pytest
import torch

import unem
from unem.core.left_out import LeftOut
from unem.core.uneven import UnevenMeans
from unem.methods._likelihood import MOST_OVERLAP, SCALES, _Calibration
from unem.methods.evidence import CHOSEN, fit_likelihood

METHODS = ["whitened-mean", "evidence"]


def clusters(shots, truth, spread=0.45, features=100, seed=0):
    """Some samples of each class, and queries."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
    means = spread * torch.randn(len(shots), features, generator=generator)
    support, query = (means[y] + torch.randn(len(y), features, generator=generator) for y in (labels, truth))
    return unem.Task(support, labels, query)


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [2, 3, 5, 10])
@pytest.mark.parametrize("name", METHODS)
def test_a_class_with_a_single_label_swallows_no_other(name, others):
    """Its only row has length one, and is no nearer to the others' queries than its variance says."""
    truth = torch.arange(200) % 10
    for seed in range(5):
        answer = unem.create_method(name).predict(clusters([1] + [others] * 9, truth, seed=seed)).labels
        right = (answer == truth)[truth > 0].float().mean()
        taken = (answer[truth > 0] == 0).float().mean()
        assert taken < 0.1, f"{100 * taken:.0f} % of the others' queries taken, seed {seed}"
        assert right > 0.5, f"{100 * right:.0f} % right, seed {seed}"


@pytest.mark.parametrize("many", [5, 20])
@pytest.mark.parametrize("name", METHODS)
def test_of_two_classes_the_one_with_most_labels_keeps_its_queries(name, many):
    """The support's mean would lie within it, and half of its queries on the other side."""
    truth = torch.cat([torch.zeros(40, dtype=torch.long), torch.ones(40, dtype=torch.long)])
    shares = []
    for seed in range(6):
        answer = unem.create_method(name).predict(clusters([many, 1], truth, spread=0.7, seed=seed)).labels
        shares.append([(answer[truth == k] == k).float().mean() for k in (0, 1)])
    first, second = torch.tensor(shares).mean(0)
    assert first > 0.9
    assert second > 0.85


# -- the likelihood ----------------------------------------------------------------------------------------------------


def test_of_an_even_support_nothing_is_uneven():
    for shots in (1, 3):
        likelihood = fit_likelihood(clusters([shots] * 6, torch.arange(9) % 6))
        torch.testing.assert_close(likelihood.uneven, torch.zeros_like(likelihood.uneven))
        torch.testing.assert_close(likelihood.lacking, torch.zeros_like(likelihood.lacking), rtol=0, atol=1e-5)
        torch.testing.assert_close(likelihood.even_variances, likelihood.variances)
        assert likelihood.shots.item() == pytest.approx(shots)


def expected(likelihood, distance, variance, even, uneven, numbers):
    """The formula, for one query and class."""
    rho, apart, overlap = (x.item() for x in (likelihood.spread, likelihood.apart, likelihood.overlap))
    kappa, level = numbers.trust.item() * overlap, 1 / likelihood.shots.item()
    scale = likelihood.scale.item() * (1 + kappa * level) / (1 + kappa * even)
    return -0.5 * scale * (distance - rho * (1 + variance) - uneven - numbers.pivot.item() * apart)


def test_the_likelihood_of_means_that_queries_have_moved():
    """Each query without its own share: in the mean, its variance, and how much of it is the support's."""
    task = clusters([1, 2, 6], torch.arange(7) % 3).to(torch.float64)
    likelihood, numbers = fit_likelihood(task), CHOSEN.to(task.query)
    shares = torch.rand(1, 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    seen = likelihood.whitening.see(task.query)
    sums = likelihood.sums + seen.sums(shares)
    sizes = (likelihood.counts + shares.sum(1)).unsqueeze(1)
    found = likelihood.of_sums(
        likelihood.whitening.products(seen, sums),
        likelihood.whitening.squares(sums).unsqueeze(1),
        sizes,
        shares,
        shares.square().sum(1, keepdim=True),
        numbers,
    )
    counts, harmonic = [1.0, 2.0, 6.0], 3 / (1 + 1 / 2 + 1 / 6)
    squares, cross = likelihood.whitening.squares(sums), likelihood.whitening.products(seen, sums)
    for n in range(7):
        for k in range(3):
            own = shares[0, n, k].item()
            others = counts[k] + shares[0, :, k].sum().item() - own
            left = shares[0, :, k].square().sum().item() - own**2
            whole = others + own
            distance = 1 - 2 * cross[0, n, k].item() / whole + squares[0, k].item() / whole**2
            value = expected(
                likelihood,
                distance * (whole / others) ** 2,
                (counts[k] + left) / others**2,
                (harmonic + left) / (others + harmonic - counts[k]) ** 2,
                likelihood.uneven[0, 0, k].item() * (counts[k] / others) ** 2,
                numbers,
            )
            assert found[0, n, k].item() == pytest.approx(value, rel=1e-9)


def test_where_nothing_is_assigned_it_is_that_of_the_support():
    task = clusters([1, 3, 5], torch.arange(8) % 3).to(torch.float64)
    likelihood, numbers = fit_likelihood(task), CHOSEN.to(task.query)
    products = likelihood.whitening.products(likelihood.whitening.see(task.query), likelihood.sums)
    nothing = torch.zeros(1, 8, 3, dtype=torch.float64)
    moved = likelihood.of_sums(
        products, likelihood.squares.unsqueeze(1), likelihood.counts.unsqueeze(1), nothing, nothing[:, :1], numbers
    )
    torch.testing.assert_close(moved, likelihood.of_support(products, numbers))


def test_more_samples_make_less_of_what_is_uneven():
    task = clusters([1, 3, 5], torch.arange(8) % 3)
    likelihood = fit_likelihood(task)
    more = torch.tensor([[3.0, 0.0, 5.0]])
    rows = likelihood.whitening.see(task.query).sums(torch.ones(1, 8, 3))
    grown = likelihood.with_more(rows, more)
    torch.testing.assert_close(grown.uneven, likelihood.uneven * torch.tensor([[[1 / 16, 1.0, 1 / 4]]]))
    torch.testing.assert_close(grown.lacking, likelihood.lacking)


# -- calibration -------------------------------------------------------------------------------------------------------


def some_left_out(distances):
    """Four samples of two classes, left out of supports with 1, 3 and 5."""
    labels, variances = torch.tensor([[1, 1, 2, 2]]), torch.tensor([1.0, 1 / 2, 1 / 4]).expand(1, 4, 3)
    means = UnevenMeans.of(torch.tensor([[1.0, 6.3, 15.0]]), torch.tensor([[1.0, 3.0, 5.0]]))
    assert 0 < means.slope.item() < 1
    held = LeftOut(torch.arange(4)[None], labels, distances, variances, torch.ones(1, 4, dtype=torch.bool))
    return _Calibration(held, means)


def test_held_out_samples_are_as_probable_as_the_formula_says():
    distances = 1 + torch.rand(1, 4, 3, generator=torch.Generator().manual_seed(0))
    calibration = some_left_out(distances)
    rho = 0.8
    offset = (calibration.means.slope.item() - rho) * calibration.means.variances[0]
    losses = calibration.losses(torch.tensor([rho]))[0]
    for scale, loss in zip(SCALES, losses.tolist(), strict=True):
        logits = -0.5 * scale * (distances[0] - rho * (1 + calibration.held.variances[0]) - offset)
        exact = -logits.log_softmax(-1)[torch.arange(4), calibration.held.labels[0]].sum().item()
        assert loss == pytest.approx(exact + (math.log(scale / 20) / 0.5) ** 2 / 2, rel=1e-4)


def test_how_far_apart_classes_are_is_reckoned_with_what_is_uneven():
    distances = 1 + torch.rand(1, 4, 3, generator=torch.Generator().manual_seed(0))
    calibration = some_left_out(distances)
    inner, _ = calibration.spread()
    labels, variances = calibration.held.labels[0], calibration.held.variances[0]
    own = torch.nn.functional.one_hot(labels, 3).bool()
    assert inner.item() == pytest.approx((distances[0][own].sum() / (1 + variances[own]).sum()).item())
    far = some_left_out(distances + 2 * ~own)
    offset = (far.means.slope.item() - inner.item()) * far.means.variances[0]
    beyond = (distances[0] + 2 - inner * (1 + variances) - offset)[~own].mean()
    assert far.spread()[1].item() == pytest.approx(beyond.item(), rel=1e-5)


def test_overlap_is_bounded():
    """A few held-out samples may be as near to other classes as to their own, by chance."""
    inner, outer = some_left_out(torch.ones(1, 4, 3)).spread()
    assert (2 * inner / outer).item() == pytest.approx(MOST_OVERLAP)


@pytest.mark.parametrize(
    ("shots", "missing"),
    [
        ((1, 1, 1), 2),
        ((5, 1, 1), 1),
        ((2, 2, 1), 0),
        ((20, 1), 1),
        ((2, 2), 0),
        ((2, 2, 1, 1), 0),
        ((9, 9, 1, 1, 1), 1),
    ],
)
def test_it_takes_a_second_label_of_half_of_the_classes(shots, missing):
    task = clusters(list(shots), torch.arange(9) % len(shots))
    assert fit_likelihood(task).calibrated.item() is (missing == 0)
    notes = [note for note in unem.choose(task).notes if "not calibrated" in note]
    assert len(notes) == (missing > 0)
    if missing:
        assert f"a second labelled sample of {missing} more class" in notes[0]


def test_beside_texts_classes_are_taken_for_clearer_where_nothing_says_so():
    task = clusters([1, 1, 1], torch.arange(9) % 3)
    text = torch.randn(3, task.num_features, generator=torch.Generator().manual_seed(0))
    assert fit_likelihood(task).overlap.item() == pytest.approx(8)
    assert fit_likelihood(task, text).overlap.item() == pytest.approx(4)


@pytest.mark.parametrize(("noise", "least", "most"), [(0.0, 20, 140), (30.0, 2, 10)])
def test_with_one_label_a_class_texts_count_as_much_as_they_are_right_about_it(noise, least, most):
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(12, 64, generator=generator)
    rows = text + torch.randn(12, 64, generator=generator)
    said = text + noise * torch.randn(12, 64, generator=generator)
    weight = fit_likelihood(unem.Task(rows, torch.arange(12), rows, text=said), said).text_weight
    assert least <= weight.item() <= most
    exact = [
        torch.log_softmax(w * torch.cosine_similarity(rows[:, None], said[None], dim=-1), -1).diagonal().sum()
        - (math.log(w / 40) / 0.7) ** 2 / 2
        for w in (2, 5, 10, 20, 40, 70, 100, 140)
    ]
    assert weight.item() == (2, 5, 10, 20, 40, 70, 100, 140)[int(torch.stack(exact).argmax())]
    padded = unem.Task(torch.cat([rows, 9 * rows[:5]]), torch.cat([torch.arange(12), torch.full((5,), -1)]), rows)
    assert torch.equal(fit_likelihood(padded, said).text_weight, weight)
