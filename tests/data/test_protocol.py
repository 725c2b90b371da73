"""The protocol: what a task is, as it may be written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unem import InputError, Protocol


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shots": 0}, "shots: expected a whole number of at least 1, got 0"),
        ({"shots": 2.5}, "shots"),
        ({"queries": -3}, "queries"),
        ({"effective_classes": "few"}, "effective_classes: expected a number"),
        ({"effective_classes": 0}, "effective_classes"),
        ({"effective_classes": "9-3"}, "1 ≤ low ≤ high"),
        ({"balance": "uniform"}, "balance: expected 'pooled', 'balanced' or 'dirichlet"),
        ({"balance": "dirichlet(-1)"}, "balance"),
        ({"balance": "dirichlet(1e999)"}, "balance"),
        ({"query_classes": ()}, "query_classes"),
    ],
)
def test_bad_protocols_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        Protocol(**settings)


@given(text=st.text(max_size=12))
def test_any_text_is_parsed_or_refused(text):
    for field in ("effective_classes", "balance"):
        try:
            Protocol(**{field: text})
        except InputError as error:
            assert field in str(error)


@pytest.mark.parametrize(
    ("value", "parsed", "expected"),
    [
        (5, 5, 5.0),
        ("7", 7, 7.0),
        ("2-8", (2, 8), 4.0),
        ((4, 9), (4, 9), 6.0),
        ([4, 9], (4, 9), 6.0),
        ("all", "all", 20.0),
    ],
)
def test_ways_to_write_the_effective_classes(value, parsed, expected):
    protocol = Protocol(effective_classes=value)
    assert protocol.effective_classes == parsed
    assert protocol.expected_effective_classes(20) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("balance", "concentration"), [("pooled", None), ("balanced", None), ("dirichlet", 1.0), ("dirichlet( 2.5 )", 2.5)]
)
def test_the_concentration_is_read_from_the_balance(balance, concentration):
    assert Protocol(balance=balance).dirichlet_concentration() == concentration


def test_query_classes_are_a_set():
    assert Protocol(query_classes=[3, 1, 3]).query_classes == (1, 3)
