"""Class means of different numbers of samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unem.core.uneven import UnevenMeans


def means_of(lengths, counts):
    """Of sums whose means have such squared lengths."""
    lengths, counts = (torch.tensor([values], dtype=torch.float64) for values in (lengths, counts))
    return UnevenMeans.of(lengths * counts.square(), counts)


def test_the_slope_is_that_of_a_line_through_the_classes():
    counts, lengths = [1, 1, 2, 4, 7], [0.9, 1.0, 0.8, 0.7, 0.5]
    means = means_of(lengths, counts)
    slope = np.polyfit(1 / np.array(counts), lengths, 1)[0]
    assert 0 < slope < 1
    assert means.slope.item() == pytest.approx(slope)
    variances = 1 / np.array(counts)
    np.testing.assert_allclose(means.farther(2 * means.slope)[0, 0], 2 * slope * (variances - variances.mean()))


@pytest.mark.parametrize(("lengths", "slope"), [([0.2, 0.9], 0.0), ([1.0, 0.1], 1.0), ([0.7, 0.7], 0.0)])
def test_the_slope_neither_falls_nor_exceeds_what_rows_of_length_one_allow(lengths, slope):
    assert means_of(lengths, [1, 2]).slope.item() == slope


def test_one_sample_less_of_many_changes_little():
    """Means differ in length by chance, which almost no difference in their variances must not explain."""
    farther = (means := means_of([0.9, 0.2, 0.3], [20, 19, 20])).farther(means.slope)
    assert farther.abs().max() < 0.003


def test_where_all_classes_have_as_many_samples_nothing_is_farther():
    means = means_of([0.9, 0.2, 0.4], [3, 3, 3])
    assert means.farther(means.slope + 1).abs().max() < 1e-12


def test_classes_without_samples_have_no_part():
    with_empty, without = means_of([1.0, 0.0, 0.5, 0.8], [1, 0, 5, 2]), means_of([1.0, 0.5, 0.8], [1, 5, 2])
    torch.testing.assert_close(with_empty.slope, without.slope)
    torch.testing.assert_close(
        with_empty.farther(torch.ones(1, 1))[0, 0, [0, 2, 3]], without.farther(torch.ones(1, 1))[0, 0]
    )
    assert with_empty.variances[0, 1] == 0
