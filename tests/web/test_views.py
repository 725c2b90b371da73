"""What a visitor sees."""

from __future__ import annotations

from helpers.app_data import SMALL, png
from unem.web import views
from unem.web.session import Session


def test_names_never_become_markup(models):
    evil = "<img src=x onerror=alert(1)>{{x}}${y}`"
    session = Session(SMALL)
    for name in (f"{evil}1.png", "ok2.png"):
        session.receive("support", name, png(len(name)))
    session.receive("query", f"q{evil}.png", png(3))
    session.support.left_out.append((evil, evil))
    outcome = session.label(models, "em-gaussian")
    seen = [
        views.sent(session.support, "support"),
        views.summary(outcome),
        views.gallery(outcome, session, outcome.order(), 0, 0),
        views.chosen(outcome, session, 0),
        views.changes(outcome),
        views.layers(outcome),
    ]
    for page in seen:
        assert "<img src=x" not in page
        assert not any(mark in page for mark in ("{{", "${", "`"))
    assert "&lt;img src=x" in seen[2]
