"""The least work of a case is counted by hand."""

from __future__ import annotations

from helpers.benchmark_cases import MACHINE
from unem.benchmark import Case, Work, least_work


def test_floor_of_the_gaussian_law_is_counted():
    case = Case("gaussian", classes=3, features=7, shots=2, queries=5, layers=4)
    gram = 2 * 5 * 5 * 7 + 2 * 5 * 3 * 7 + 3 * (2 * 5 * 5 * 3)
    work = least_work(case, "forward")
    assert work.flops == gram == 1010
    assert work.bytes == 4 * (6 * 7 + 5 * 7) + 8 * 6 + 4 * 5 * 3
    step = least_work(case, "step")
    assert step.flops == 2 * 450
    assert step.bytes == 4 * (25 + 15) + 8 * 5
    many = Case("gaussian", classes=3, features=7, shots=2, queries=1000, layers=4)
    assert least_work(many, "forward").flops == 7 * (2 * 1000 * 3 * 7)  # explicit means are cheaper
    assert least_work(many, "step").bytes == 4 * (1000 + 3) * 7 + 8 * 1000


def test_floor_of_the_dirichlet_law_is_counted():
    case = Case("dirichlet", classes=3, features=3, shots=2, queries=5, layers=4)
    work = least_work(case, "forward")
    assert work.flops == 4 * (2 * (2 * 5 * 3 * 3) + 5 * 40 * 9)
    assert work.bytes == 4 * (6 * 3 + 5 * 3) + 8 * 6 + 4 * 15 + 4 * (4 * 36)
    step = least_work(case, "step")
    assert step.flops == 4 * (3 * 2 * (2 * 5 * 3 * 3) + 6 * 40 * 9)
    assert step.bytes == 4 * (6 * 3 + 5 * 3) + 8 * 6 + 8 * 5 + 4 * (6 * 36)


def test_floor_says_what_bounds():
    assert Work(flops=10, bytes=3).floor(MACHINE) == (1e-8, "arithmetic")
    assert Work(flops=3, bytes=10).floor(MACHINE) == (1e-8, "memory")
