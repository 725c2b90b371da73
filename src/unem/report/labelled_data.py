"""Labelled images as plain data, which one small program draws: on the web page and on the contact sheet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unem.inference import Labelling, readable, sentence
from unem.methods import method_info

__all__ = ["labelled_data"]

DIGITS = 6
CANDIDATES = 5  # most probable classes of an image that are shown


def labelled_data(labelling: Labelling, rows: Sequence[int] | None = None) -> dict[str, Any]:
    """The classes, what is said of each image, and how that came about.

    Args:
        rows: the images that are wanted, by number; all when left out.
    """
    answer = labelling.answer
    chosen = list(range(len(labelling))) if rows is None else list(rows)
    rank = {row: place for place, row in enumerate(labelling.by_doubt.tolist())}
    best = answer.probabilities.topk(min(CANDIDATES, len(labelling.class_names)))
    values, classes = best.values.tolist(), best.indices.tolist()
    labels, alone = answer.labels.tolist(), answer.independent.tolist()
    novel = [False] * len(labelling) if answer.none_of_these is None else answer.none_of_these.tolist()
    by_hand = [False] * len(labelling) if answer.by_hand is None else answer.by_hand.tolist()
    return {
        "classes": [readable(name) for name in labelling.class_names],
        "none": labelling.none_name,
        "images": [
            {
                "name": readable(labelling.images.paths[i]),
                "label": labels[i],
                "p": round(float(answer.probabilities[i, labels[i]]), DIGITS),
                "top": [[k, round(p, DIGITS)] for k, p in zip(classes[i], values[i], strict=True)],
                "alone": alone[i],
                "novel": novel[i],
                "hand": by_hand[i],
                "rank": rank[i],
            }
            for i in chosen
        ],
        "looked_for_new": answer.novelty is not None,
        "jointly": method_info(answer.method).transductive,
        "method": answer.method,
        "schedule": answer.schedule,
        "reason": sentence(answer.reason),
        "decision": answer.decision,
        "notes": list(labelling.notes),
        "backbone": labelling.backbone,
        "seconds": round(sum(labelling.seconds.values()), 1),
    }
