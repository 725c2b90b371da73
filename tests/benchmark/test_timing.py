"""Rounds, and who is warmed up. No time is asserted."""

from __future__ import annotations

import torch

from unem.benchmark import Contender, interleave, timing


def test_slow_references_run_once_and_others_are_warmed_up(monkeypatch):
    monkeypatch.setattr(timing, "SLOW_SECONDS", 0.0)
    calls = {"unem": 0, "direct": 0}

    def counted(name):
        calls[name] += 1
        torch.rand(100).sum()

    contenders = {
        "unem": Contender(lambda: counted("unem"), 1),
        "direct": Contender(lambda: counted("direct"), 1, patient=True),
    }
    measured = interleave(contenders, "cpu", budget=0.01)
    assert calls["direct"] == 1
    assert calls["unem"] > 3
    assert len(set(measured["direct"].seconds)) == 1
    assert len(measured["direct"].seconds) == len(measured["unem"].seconds)
