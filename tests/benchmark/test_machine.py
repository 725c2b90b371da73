"""The machine's columns and its line."""

from __future__ import annotations

import torch

from unem.benchmark import Machine, machine


def test_the_machine_is_measured(monkeypatch):
    monkeypatch.setattr(machine, "_matmul_rate", lambda device, size: 2e9)
    monkeypatch.setattr(machine, "_copy_bandwidth", lambda device, elements: 3e9)
    measured = Machine.measure("cpu")
    assert measured.name
    assert "2 GFLOP/s, 3 GB/s" in str(measured)
    assert measured.columns()["threads"] == torch.get_num_threads()
