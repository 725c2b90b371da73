"""Answers in the order asked for."""

from __future__ import annotations

import pytest

from unem.errors import InputError
from unem.web.session import Session


def test_orders_and_filters(models):
    session = Session()
    session.show_example("digits")
    outcome = session.label(models)
    sure = outcome.confidence
    assert [float(sure[i]) for i in outcome.order("confidence")] == sorted(sure.tolist(), reverse=True)
    assert outcome.order("name") == sorted(range(60), key=lambda i: outcome.items[i].name)
    some = outcome.class_names[int(outcome.labels[0])]
    assert set(outcome.order("class", some)) == set((outcome.labels == outcome.labels[0]).nonzero().squeeze(1).tolist())
    for wrong in ({"by": "size"}, {"only": "dog"}):
        with pytest.raises(InputError):
            outcome.order(**wrong)
