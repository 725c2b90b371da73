"""Settings are refused with a sentence that names them."""

from __future__ import annotations

import math

import pytest

from unem import InputError
from unem._checks import check_count, check_number, check_positive, check_weight


@pytest.mark.parametrize("value", [0, 1, -3, True, 2.0, "2", None])
def test_counts(value):
    with pytest.raises(InputError, match=r"^tasks: expected a whole number of at least 2, got"):
        check_count(at_least=2, seeds=2, tasks=value)
    check_count(at_least=2, seeds=2, tasks=3)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_positive_numbers_and_weights(value):
    with pytest.raises(InputError, match=r"^b: expected a finite number above 0, got"):
        check_positive(a=1.0, b=value)
    with pytest.raises(InputError, match=r"^b: expected a finite number of at least 0, got"):
        check_weight(a=0.0, b=value)


def test_zero_is_a_weight_but_not_positive():
    check_weight(a=0.0)
    with pytest.raises(InputError, match=r"above 0, got 0.0"):
        check_positive(a=0.0)


def test_numbers_in_a_range():
    check_number("share", 0.0, lower=0, upper=1)
    with pytest.raises(InputError, match=r"^share: expected a number of at least 0 and below 1, got 1$"):
        check_number("share", 1, lower=0, upper=1)
    with pytest.raises(InputError, match=r"^scale: expected a number above 0, got 0$"):
        check_number("scale", 0, lower=0, strict=True)
    with pytest.raises(InputError, match=r"^scale: expected a number of at least 0, got nan$"):
        check_number("scale", math.nan, lower=0)
