"""What ``benchmarks/run.py`` measures."""

from __future__ import annotations

import run as full_run
from helpers.benchmark_cases import MACHINE


def test_every_measurement_of_the_full_run_has_its_own_name():
    names = [name for name, _ in full_run.measurements(MACHINE, quick=False)]
    assert len(names) == len(set(names))
    quick = {name for name, _ in full_run.measurements(MACHINE, quick=True)}
    assert quick < set(names)
