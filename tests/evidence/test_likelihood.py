"""The likelihood of queries in whitened directions: its formulas written out, and supports that are uneven."""

from __future__ import annotations

import math

import pytest
import torch

from helpers.clusters import clusters
from unem.core.whitening import class_means
from unem.evidence import Numbers
from unem.evidence.likelihood import cosines, fit_likelihood

NUMBERS = Numbers()


def uneven(shots=(1, 2, 6), queries=7, text=None, **settings):
    made = clusters(1, len(shots), shots, queries, **settings)
    return made, fit_likelihood(made.support, made.member, text, NUMBERS)


def expected(likelihood, distance, variance, even, correction):
    """The formula, for one query and class."""
    c = likelihood.calibration
    rho, separation, overlap = (x.item() for x in (c.spread, c.separation, c.overlap))
    kappa, level = NUMBERS.trust * overlap, 1 / likelihood.shots.item()
    scale = c.scale.item() * (1 + kappa * level) / (1 + kappa * even)
    return -0.5 * scale * (distance - rho * (1 + variance) - correction - NUMBERS.pivot * separation)


def test_of_a_support_alone():
    made, likelihood = uneven()
    whitening = likelihood.whitening
    rows, support = whitening.transform(made.query), whitening.transform(made.support)
    found = likelihood.of_support(whitening.products(rows, likelihood.sums))
    means = support.sums(made.member).scaled(1 / likelihood.counts)
    harmonic = 3 / (1 + 1 / 2 + 1 / 6)
    assert likelihood.shots.item() == pytest.approx(harmonic)
    for k, count in enumerate((1, 2, 6)):
        distance = 1 - 2 * whitening.products(rows, means)[0, :, k] + whitening.squares(means)[0, k]
        correction = likelihood.shot_correction[0, 0, k].item()
        value = expected(likelihood, distance, 1 / count, 1 / harmonic, correction)
        torch.testing.assert_close(found[0, :, k], value)


def test_of_means_that_queries_have_moved():
    """Each query without its own share: in the mean, its variance, and how much of it is the support's."""
    made, likelihood = uneven()
    shares = torch.rand(1, 7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    whitening = likelihood.whitening
    rows = whitening.transform(made.query)
    sums = likelihood.sums + rows.sums(shares)
    sizes = (likelihood.counts + shares.sum(1)).view(1, 1, 1, 3)
    found = likelihood.of_sums(
        whitening.products(rows, sums).unsqueeze(1),
        whitening.squares(sums).view(1, 1, 1, 3),
        sizes,
        shares.unsqueeze(1),
        shares.square().sum(1).view(1, 1, 1, 3),
    )[0, 0]
    counts, harmonic = [1.0, 2.0, 6.0], 3 / (1 + 1 / 2 + 1 / 6)
    squares, cross = whitening.squares(sums), whitening.products(rows, sums)
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
                likelihood.shot_correction[0, 0, k].item() * (counts[k] / others) ** 2,
            )
            assert found[n, k].item() == pytest.approx(value, rel=1e-9)


def test_without_queries_in_the_means_it_is_that_of_the_support():
    made, likelihood = uneven((1, 3, 5))
    products = likelihood.whitening.products(likelihood.whitening.transform(made.query), likelihood.sums)
    nothing = torch.zeros(1, 1, 7, 3, dtype=torch.float64)
    squares, counts = (x.view(1, 1, 1, 3) for x in (likelihood.squares, likelihood.counts))
    moved = likelihood.of_sums(products.unsqueeze(1), squares, counts, nothing, nothing[:, :, :1])
    torch.testing.assert_close(moved[:, 0], likelihood.of_support(products))


@pytest.mark.parametrize("shots", [1, 3])
def test_of_an_even_support_nothing_is_corrected(shots):
    _, likelihood = uneven((shots,) * 6)
    torch.testing.assert_close(likelihood.shot_correction, torch.zeros_like(likelihood.shot_correction))
    torch.testing.assert_close(likelihood.shot_deficit, torch.zeros_like(likelihood.shot_deficit))
    torch.testing.assert_close(likelihood.even_variances.expand(-1, -1, 6), likelihood.variances)
    assert likelihood.shots.item() == pytest.approx(shots)


def test_texts_are_cosines_and_their_means_are_over_the_class():
    text = torch.randn(3, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    made, likelihood = uneven((2, 2, 5), text=text)
    cosine = torch.nn.functional.cosine_similarity(made.support.unsqueeze(2), text.view(1, 1, 3, -1), dim=-1)
    torch.testing.assert_close(cosines(made.support, text), cosine)
    weight = likelihood.calibration.text_weight.item()
    torch.testing.assert_close(likelihood.text_means, weight * class_means(cosine, made.member))
    assert fit_likelihood(made.support, made.member, None, NUMBERS).text_means is None


def test_samples_of_the_support_are_as_far_as_is_expected():
    """Those that were held out: on average, over all of them."""
    _, likelihood = uneven((5,) * 8, features=60)
    held = likelihood.held_out
    own = held.distances.gather(2, held.labels.unsqueeze(-1))
    expected = likelihood.calibration.spread.item() * (1 + 1 / 4)
    assert own.mean().item() == pytest.approx(expected)
    assert likelihood.expected_distances().mean().item() == pytest.approx(likelihood.calibration.spread.item() * 1.2)


# -- answers to queries that are shifted ------------------------------------------------------------------------------


def test_where_numbers_are_even_a_common_offset_speaks_for_no_class():
    """The bias takes off what an offset along class means adds, as far as a shift is certain."""
    made, likelihood = uneven((4,) * 5, queries=50, truth=torch.arange(50) % 5)
    towards = made.support[:, :4].mean(1, keepdim=True)
    rows = likelihood.whitening.transform(made.query + 0.6 * towards)
    cross = likelihood.whitening.products(rows, likelihood.sums)
    ones = torch.ones(1, 50, 1, dtype=torch.float64)
    taken = []
    for share in (0.0, 1.0):
        bias, explained = likelihood.bias_of_offset(cross, ones, torch.full((1,), share, dtype=torch.float64))
        assert (bias[:, :-1] == 0).all()
        assert (explained[:, :-1] == 0).all()
        assert (explained >= 0).all()
        answer = likelihood.of_support(cross) + bias[:, -1]
        taken.append(answer.softmax(-1).mean(1)[0, 0].item())
    assert taken[0] > 0.3
    assert taken[1] == pytest.approx(0.2, abs=0.05)


# -- finished answers --------------------------------------------------------------------------------------------------


def some_answer(seed=0):
    joint = torch.rand(2, 60, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).pow(4)
    return joint / joint.sum(-1, keepdim=True)


def of_shots(shots, numbers=NUMBERS):
    made = clusters(2, 8, shots, 1)
    return fit_likelihood(made.support, made.member, None, numbers)


@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize("sharpness", [0.1, 1.0, 30.0])
def test_a_finished_answer_is_a_probability_with_the_same_labels(shots, sharpness):
    """Whatever the independent answer says."""
    joint, g = some_answer(), torch.Generator().manual_seed(1)
    alone = sharpness * torch.randn(2, 60, 8, generator=g, dtype=torch.float64)
    found = of_shots(shots).finished(joint, alone)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 60, dtype=torch.float64))
    assert (found >= 0).all()
    assert torch.equal(found.argmax(-1), joint.argmax(-1))


def test_certainty_is_a_power():
    joint = some_answer()
    plain = {"certainty_overlap": 0.0, "certainty_shots": 0.0, "doubt": 0.0}
    for certainty in (0.5, 0.0, -0.5):
        found = of_shots(5, Numbers(certainty=certainty, **plain)).finished(joint, joint.log())
        expected = joint ** math.exp(certainty)
        torch.testing.assert_close(found, expected / expected.sum(-1, keepdim=True))
    found = of_shots(1, Numbers(certainty=0.5, **plain)).finished(joint, joint.log())
    torch.testing.assert_close(found, joint)  # nothing says how sure answers are right


@pytest.mark.parametrize("shots", [1, 5])
def test_an_answer_keeps_a_part_of_the_doubt_of_each_query_by_itself(shots):
    """Where a joint answer is surer than that, it is mixed with the independent one just so much."""
    g = torch.Generator().manual_seed(2)
    sure, alone = torch.eye(8, dtype=torch.float64)[torch.randint(8, (2, 60), generator=g)], some_answer(3).log()
    alone = alone + 3 * sure  # the same class, mostly
    found = of_shots(shots).finished(sure, alone)
    by_itself = ((1.0 if shots > 1 else 0.5) * alone).softmax(-1)
    own = (by_itself * sure).sum(-1)
    torch.testing.assert_close((found * sure).sum(-1), 1 - NUMBERS.doubt * (1 - own))
    others = (found * (1 - sure)) / (found * (1 - sure)).sum(-1, keepdim=True)
    torch.testing.assert_close(others, by_itself * (1 - sure) / (1 - own).unsqueeze(-1))


def test_a_joint_answer_that_is_in_doubt_is_left_alone():
    flat = torch.full((2, 60, 8), 1 / 8, dtype=torch.float64)
    torch.testing.assert_close(of_shots(5).finished(flat, some_answer().log()), flat)


def test_answers_of_no_doubt_at_all_are_probabilities():
    """Of single precision, where nearly all classes have nothing."""
    made = clusters(2, 8, 5, 1, dtype=torch.float32)
    likelihood = fit_likelihood(made.support, made.member, None, NUMBERS)
    logits = 1e4 * torch.randn(2, 60, 8, generator=torch.Generator().manual_seed(0))
    for alone in (logits, -logits):
        found = likelihood.finished(logits.softmax(-1), alone)
        assert torch.isfinite(found).all()
        torch.testing.assert_close(found.sum(-1), torch.ones(2, 60))
