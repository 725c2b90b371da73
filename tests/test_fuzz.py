"""A fixed part of the fuzz suite; ``python tests/fuzz.py --minutes 60`` tries as much as there is time for."""

from __future__ import annotations

import random

import pytest

import fuzz

CASES = {"tasks": 120, "files": 150, "schedules": 150, "images": 150, "commands": 40}


@pytest.mark.parametrize("kind", list(fuzz.KINDS))
def test_nothing_but_answers_and_sentences(kind):
    count = fuzz.Count()
    for number in range(CASES[kind]):
        fuzz.try_case(kind, fuzz.KINDS[kind], number, seed=0, count=count)
    assert count.failures == []
    assert count.tried == CASES[kind] == sum(count.answers.values())
    assert len(count.answers) == 2, "all are accepted, or all refused: nothing is tried"


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), RecursionError("deep")])
def test_what_is_no_sentence_is_a_failure(error):
    def broken(*_):
        raise error

    count = fuzz.Count()
    fuzz.try_case("tasks", broken, 7, seed=0, count=count)
    assert len(count.failures) == 1
    assert count.failures[0].startswith(f"tasks 7: {type(error).__name__}")


def test_a_case_is_determined_by_its_number(tmp_path):
    first, again, other = (
        fuzz.fuzz_cases.damaged(random.Random(f"0 files {n}"), bytes(range(256)) * 9) for n in (3, 3, 4)
    )
    assert first == again != other
