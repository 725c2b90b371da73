"""Random tasks, files, schedules, images and command lines, as many as there is time for.

    python tests/fuzz.py --minutes 60
    python tests/fuzz.py --kind schedules --case 1234   one case again, with its traceback

Each must be answered, or refused in a sentence. A case is determined by the seed, its kind and its number. A small,
fixed part runs with the other tests (``test_fuzz.py``). Exit code 1 when something failed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from helpers import fuzz_cases, fuzz_commands

KINDS: dict[str, fuzz_cases.Case] = {
    "tasks": fuzz_cases.a_task,
    "files": fuzz_cases.a_file,
    "schedules": fuzz_cases.a_schedule,
    "images": fuzz_cases.an_image,
    "commands": fuzz_commands.a_command,
}
MEMORY = 1 << 30  # bytes that one case may add to the peak
PATIENCE = 120  # seconds after which a case counts as hanging
REPORT = 60  # seconds between lines on the screen


@dataclass
class Count:
    """What was tried of one kind."""

    tried: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def __str__(self) -> str:
        answers = ", ".join(f"{count} {answer}" for answer, count in sorted(self.answers.items()))
        return f"{self.tried} tried: {answers or 'none answered'}; {len(self.failures)} failed"


def try_case(kind: str, case: Callable[..., str], number: int, seed: int, count: Count) -> None:
    """One case, in a folder of its own; whatever goes wrong is counted, with what repeats it."""
    rng = random.Random(f"{seed} {kind} {number}")
    count.tried += 1
    began, memory = time.monotonic(), _peak_memory()
    with tempfile.TemporaryDirectory(prefix="unem-fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            count.answers[case(rng, Path(folder))] += 1
        except Exception as error:
            where = traceback.extract_tb((error.__cause__ or error).__traceback__)[-1]
            reason = error.__cause__ or error
            count.failures.append(
                f"{kind} {number}: {type(reason).__name__}: {str(reason)[:200]} "
                f"({Path(where.filename).name}:{where.lineno}){f' in {error}' if error.__cause__ else ''}"
            )
    if _peak_memory() - memory > MEMORY:
        count.failures.append(f"{kind} {number}: took {(_peak_memory() - memory) / 1e9:.1f} GB")
    count.slowest = max(count.slowest, time.monotonic() - began)


def _peak_memory() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def run(kinds: dict[str, Callable[..., str]], seconds: float, seed: int, first: int = 0) -> dict[str, Count]:
    """All kinds in turn, until the time is over; each gets an equal share of it."""
    counts = {kind: Count() for kind in kinds}
    spent = dict.fromkeys(kinds, 0.0)
    number = dict.fromkeys(kinds, first)
    end, shown = time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < end:
        kind = min(spent, key=lambda k: spent[k])
        began, failed = time.monotonic(), len(counts[kind].failures)
        with _patience():
            try_case(kind, kinds[kind], number[kind], seed, counts[kind])
        number[kind] += 1
        spent[kind] += time.monotonic() - began
        for failure in counts[kind].failures[failed:]:
            print(f"FAILED {failure}", flush=True)
        if time.monotonic() - shown > REPORT:
            shown = time.monotonic()
            print("; ".join(f"{k} {c.tried}" for k, c in counts.items()), flush=True)
    return counts


@contextmanager
def _patience() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise TimeoutError(f"no answer after {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def repeat(kind: str, number: int, seed: int) -> None:
    """One case, as it is."""
    with tempfile.TemporaryDirectory(prefix="unem-fuzz-") as folder:
        print(KINDS[kind](random.Random(f"{seed} {kind} {number}"), Path(folder)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="only these")
    parser.add_argument("--case", type=int, help="only this one, of one kind")
    parser.add_argument("--json", type=Path, help="the counts, as a file")
    options = parser.parse_args()
    kinds = options.kind or list(KINDS)
    if options.case is not None:
        repeat(kinds[0], options.case, options.seed)
        return 0
    counts = run({k: KINDS[k] for k in kinds}, 60 * options.minutes, options.seed)
    for kind, count in counts.items():
        print(f"{kind}: {count}; slowest {count.slowest:.1f} s")
    if options.json:
        options.json.write_text(json.dumps({k: vars(c) for k, c in counts.items()}, indent=2) + "\n")
    return int(any(count.failures for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
