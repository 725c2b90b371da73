"""What a visitor takes away: the table as CSV."""

from __future__ import annotations

import csv
import io

from unem.web.outcome import Outcome

__all__ = ["csv_of"]

FORMULA = ("=", "+", "-", "@", "\t")  # a spreadsheet would compute what begins with these
MOST_COLUMNS = 100  # classes whose probabilities are all written down


def csv_of(outcome: Outcome) -> str:
    """One line for each image: its class, how sure that is, the runner-up, its class by itself, all probabilities."""
    out = io.StringIO()
    rows = csv.writer(out)
    each = [f"p({name})" for name in outcome.class_names] if len(outcome.class_names) <= MOST_COLUMNS else []
    rows.writerow(["image", "class", "confidence", "second", "second_confidence", "alone", "by_hand", *each])
    sure, best = outcome.probabilities.topk(2, 1)
    for i, item in enumerate(outcome.items):
        label, second, alone = (_cell(outcome.class_names[k]) for k in (*best[i].tolist(), int(outcome.alone[i])))
        probabilities = outcome.probabilities[i].tolist() if each else []
        confidence, runner_up, *others = (f"{p:.4f}" for p in (*sure[i].tolist(), *probabilities))
        by_hand = "yes" if i in outcome.corrected else "no"
        rows.writerow([_cell(item.name), label, confidence, second, runner_up, alone, by_hand, *others])
    return out.getvalue()


def _cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
