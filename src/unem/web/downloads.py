"""What a visitor takes away: the table as CSV."""

from __future__ import annotations

from unem.inference import csv_text, label_columns
from unem.web.outcome import Outcome

__all__ = ["csv_of"]

MOST_COLUMNS = 100  # classes whose probabilities are all written down


def csv_of(outcome: Outcome) -> str:
    """The one table of labels, with the class of each image by itself, and whether the visitor said it."""
    names = outcome.class_names
    of = [i.name for i in outcome.items], names, outcome.probabilities
    more = {
        "independently": [names[k] for k in outcome.alone.tolist()],
        "by_hand": [i in outcome.corrected for i in range(len(outcome))],
    }
    every = len(names) <= MOST_COLUMNS
    return csv_text({**label_columns(*of), **more, **label_columns(*of, all_probabilities=every)})
