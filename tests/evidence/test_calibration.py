"""Calibration on samples that are left out: its formulas written out, class means of different shots, and limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from helpers.clusters import clusters
from unem.core.leave_one_out import LeftOut
from unem.evidence import Numbers, fit_tasks
from unem.evidence.calibration import (
    SCALES,
    TEXT_WEIGHTS,
    ShotCorrection,
    calibrate,
    classes_to_calibrate,
    text_weight_alone,
)

NUMBERS = Numbers()


# -- class means of different shots ------------------------------------------------------------------------------------


def correction_of(lengths, counts):
    """Of classes whose means have such squared lengths."""
    lengths, counts = (torch.tensor([values], dtype=torch.float64) for values in (lengths, counts))
    return ShotCorrection.fit(lengths * counts.square(), counts)


def test_the_slope_is_that_of_a_line_through_the_classes():
    counts, lengths = [1, 1, 2, 4, 7], [0.9, 1.0, 0.8, 0.7, 0.5]
    correction = correction_of(lengths, counts)
    slope = np.polyfit(1 / np.array(counts), lengths, 1)[0]
    assert 0 < slope < 1
    assert correction.slope.item() == pytest.approx(slope)
    variances = 1 / np.array(counts)
    np.testing.assert_allclose(correction.of(2 * correction.slope)[0, 0], 2 * slope * (variances - variances.mean()))


@pytest.mark.parametrize(("lengths", "slope"), [([0.2, 0.9], 0.0), ([1.0, 0.1], 1.0), ([0.7, 0.7], 0.0)])
def test_the_slope_neither_falls_nor_exceeds_what_rows_of_length_one_allow(lengths, slope):
    assert correction_of(lengths, [1, 2]).slope.item() == slope


def test_one_sample_less_of_many_changes_little():
    """Means differ in length by chance, which almost no difference in their variances must not explain."""
    correction = correction_of([0.9, 0.2, 0.3], [20, 19, 20])
    assert correction.of(correction.slope).abs().max() < 0.003


def test_where_all_classes_have_as_many_samples_nothing_is_corrected():
    correction = correction_of([0.9, 0.2, 0.4], [3, 3, 3])
    assert correction.of(correction.slope + 1).abs().max() < 1e-12


def test_classes_without_samples_have_no_part():
    with_empty = correction_of([1.0, 0.0, 0.5, 0.8], [1, 0, 5, 2])
    without = correction_of([1.0, 0.5, 0.8], [1, 5, 2])
    torch.testing.assert_close(with_empty.slope, without.slope)
    one = torch.ones(1, 1, dtype=torch.float64)
    torch.testing.assert_close(with_empty.of(one)[0, 0, [0, 2, 3]], without.of(one)[0, 0])
    assert with_empty.variances[0, 1] == 0


# -- samples that are left out -----------------------------------------------------------------------------------------

COUNTS = torch.tensor([[1.0, 3.0, 5.0]], dtype=torch.float64)
LABELS = np.array([1, 1, 2, 2])
VARIANCES = np.array([1, 1 / 2, 1 / 4])  # of means without one sample, here the same for all four


def calibrated(distances, counts=COUNTS, cosines=None, member=None, mask=None, numbers=NUMBERS):
    """Of four samples of two classes, left out of a support of 1, 3 and 5."""
    correction = ShotCorrection.fit(torch.tensor([[1.0, 6.3, 15.0]], dtype=torch.float64), COUNTS)
    assert 0 < correction.slope.item() < 1
    held = LeftOut(
        torch.arange(4)[None],
        torch.as_tensor(LABELS)[None],
        torch.as_tensor(distances)[None],
        torch.as_tensor(VARIANCES).expand(1, 4, 3),
        torch.ones(1, 4, dtype=torch.bool) if mask is None else mask,
    )
    member = torch.zeros(1, 4, 3, dtype=torch.float64) if member is None else member
    return calibrate(held, counts, correction, cosines, member, numbers), correction


def some_distances(seed=0, apart=0.6):
    own = np.eye(3)[LABELS] == 1
    return np.random.default_rng(seed).uniform(0.9, 1.5, (4, 3)) + apart * ~own


def written_out(distances, correction):
    """ρ, Δ² and the squared distances that are left, in numpy."""
    own = np.eye(3)[LABELS] == 1
    variances = np.broadcast_to(VARIANCES, (4, 3))
    spread = distances[own].sum() / (1 + variances[own]).sum()
    centred = 1 / COUNTS[0].numpy() - (1 / COUNTS[0].numpy()).mean()
    excess = distances - spread * (1 + variances) - (correction.slope.item() - spread) * centred
    return spread, max(excess[~own].mean(), 2 * spread / NUMBERS.largest_overlap), excess


@given(st.integers(0, 99), st.floats(0, 2))
def test_spread_and_separation_are_their_formulas(seed, apart):
    distances = some_distances(seed, apart)
    found, correction = calibrated(distances)
    spread, separation, _ = written_out(distances, correction)
    assert found.spread.item() == pytest.approx(spread)
    assert found.separation.item() == pytest.approx(separation)
    assert found.overlap.item() == pytest.approx(2 * spread / separation)


def loss(scale, excess, text_logits=0.0):
    logits = -0.5 * scale * excess + text_logits
    exact = (logsumexp(logits, 1) - logits[np.arange(4), LABELS]).sum()
    return exact + (math.log(scale / NUMBERS.scale) / NUMBERS.scale_spread) ** 2 / 2


def believed(found):
    """What the final means, of more samples, are believed more than those of the held-out ones."""
    kappa = NUMBERS.trust * found.overlap.item()
    return (1 + kappa * VARIANCES.mean()) / (1 + kappa * (1 / COUNTS[0].numpy()).mean())


@pytest.mark.parametrize("seed", range(6))
def test_the_scale_makes_held_out_samples_most_probable(seed):
    """Against a fine grid; between the scales that are tried lies a parabola."""
    distances = some_distances(seed)
    found, correction = calibrated(distances)
    _, _, excess = written_out(distances, correction)
    fine = np.geomspace(SCALES[0], SCALES[-1], 4000)
    best = fine[np.argmin([loss(s, excess) for s in fine])]
    assert found.scale.item() / believed(found) == pytest.approx(best, rel=0.05)


def test_samples_that_are_all_right_do_not_make_the_scale_infinite():
    overlapping, sure = (calibrated(some_distances(apart=apart))[0] for apart in (0.0, 1e3))
    assert sure.scale.item() / believed(sure) == pytest.approx(NUMBERS.scale)
    assert overlapping.scale.item() / believed(overlapping) < NUMBERS.scale


def test_overlap_is_bounded():
    """A few held-out samples may be as near to other classes as to their own, by chance."""
    assert calibrated(np.ones((4, 3)))[0].overlap.item() == pytest.approx(NUMBERS.largest_overlap)
    assert calibrated(np.zeros((4, 3)))[0].overlap.item() > 0


def test_samples_that_could_not_be_held_out_have_no_part():
    distances = some_distances()
    mask = torch.tensor([[True, True, True, False]])
    plain = calibrated(distances, mask=mask)[0]
    distances[3] = 77
    again = calibrated(distances, mask=mask)[0]
    assert (again.scale, again.spread, again.separation) == (plain.scale, plain.spread, plain.separation)


# -- where too few can be held out -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "needed"), [((1, 1, 1), 2), ((5, 1, 1, 1), 2), ((9,) * 7, 4), ((2, 2), 2), ((3, 0, 1), 2), ((4,), 2)]
)
def test_half_of_the_classes_need_two_samples(counts, needed):
    assert classes_to_calibrate(torch.tensor([counts], dtype=torch.float64)).item() == needed


@pytest.mark.parametrize(
    ("counts", "known"), [((1, 3, 5), True), ((1, 1, 5), False), ((2, 2, 1), True), ((1, 1, 1), False)]
)
def test_otherwise_numbers_are_believed_beforehand(counts, known):
    found, _ = calibrated(some_distances(), counts=torch.tensor([counts], dtype=torch.float64))
    assert found.known.item() is known
    if not known:
        assert (found.scale.item(), found.spread.item()) == (NUMBERS.unknown_scale, 1)
        assert found.overlap.item() == pytest.approx(NUMBERS.unknown_overlap)


# -- texts -------------------------------------------------------------------------------------------------------------


def test_scale_and_weight_of_texts_are_those_that_make_held_out_samples_most_probable():
    distances, cosines = some_distances(), np.random.default_rng(1).uniform(-0.1, 0.3, (4, 3))
    cosines[np.arange(4), LABELS] += 0.05
    found, correction = calibrated(distances, cosines=torch.as_tensor(cosines)[None])
    _, _, excess = written_out(distances, correction)
    before = {w: (math.log(w / NUMBERS.text_weight) / NUMBERS.text_weight_spread) ** 2 / 2 for w in TEXT_WEIGHTS[:-1]}
    fine = np.geomspace(SCALES[0], SCALES[-1], 1000)
    best = {w: min(loss(s, excess, w * cosines) for s in fine) + before[w] for w in before}
    assert found.text_weight.item() == min(best, key=best.get)


@pytest.mark.parametrize("noise", [0.0, 1.0, 30.0])
def test_with_one_label_a_class_texts_count_as_much_as_they_are_right_about_it(noise):
    generator = torch.Generator().manual_seed(0)
    text = torch.randn(12, 64, generator=generator)
    rows = text + torch.randn(12, 64, generator=generator)
    said = text + noise * torch.randn(12, 64, generator=generator)
    member = torch.eye(12).unsqueeze(0)
    weight = fit_tasks(rows.unsqueeze(0), member, said).likelihood.calibration.text_weight.item()
    cosines = torch.cosine_similarity(rows[:, None], said[None], dim=-1)
    exact = {
        w: (w * cosines).log_softmax(-1).diagonal().sum().item()
        - (math.log(w / NUMBERS.text_weight) / NUMBERS.text_weight_spread) ** 2 / 2
        for w in TEXT_WEIGHTS
    }
    assert weight == max(exact, key=exact.get)
    assert (weight <= 10) if noise > 10 else (weight >= 20)


def test_padding_says_nothing_of_texts():
    cosines = torch.rand(1, 9, 3, generator=torch.Generator().manual_seed(0))
    member = torch.eye(3)[torch.arange(9) % 3].unsqueeze(0)
    plain = text_weight_alone(cosines, member, NUMBERS)
    wrong = torch.cat([cosines, 1 - cosines], 1)
    padded = text_weight_alone(wrong, torch.cat([member, torch.zeros_like(member)], 1), NUMBERS)
    assert torch.equal(padded, plain)


# -- of whole supports -------------------------------------------------------------------------------------------------


def test_clear_classes_overlap_less():
    clear, vague = (
        fit_tasks(made.support, made.member).likelihood.calibration.overlap.mean()
        for made in (clusters(5, 8, 5, 1, noise=noise) for noise in (0.3, 1.5))
    )
    assert clear < vague


def test_beside_texts_classes_are_taken_for_clearer_where_nothing_says_so():
    made = clusters(1, 3, 1, 1)
    text = torch.randn(3, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    overlaps = [fit_tasks(made.support, made.member, t).likelihood.calibration.overlap.item() for t in (None, text)]
    assert overlaps == pytest.approx([NUMBERS.unknown_overlap, NUMBERS.unknown_overlap_text])
