"""Everything that a page shows, as plain data: a reload asks for it and has all back."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from unem.inference import DOUBTFUL
from unem.web.downloads import command_line
from unem.web.outcome import Outcome
from unem.web.session import Session
from unem.web.sides import Side
from unem.web.task_data import one_class

__all__ = ["job_data", "layers_data", "state_data"]

FEW = 20  # files of a list
FACES = 12  # small pictures of what was sent


def state_data(session: Session) -> dict[str, Any]:
    """What was sent, what was said of it, what was corrected."""
    with session.lock:
        outcome = session.outcome
        return {
            "changes": session.changes,
            "support": {**_side(session.support), "problem": one_class(session.support, session.query)},
            "query": _side(session.query),
            "settings": asdict(session.settings),
            "corrections": sorted(session.corrections.items()),
            "can_undo": session.can_undo,
            "job": job_data(session),
            "result": None if outcome is None else _result(outcome, session),
        }


def job_data(session: Session) -> dict[str, Any] | None:
    """How far the work is."""
    job = session.job
    if job is None:
        return None
    left, step = job.seconds_left(), job.step
    return {
        "number": session.jobs,
        "status": job.status,
        "stage": None if step is None else step.stage,
        "done": 0 if step is None else step.done,
        "total": 0 if step is None else step.total,
        "seconds_left": None if left is None else round(left, 1),
        "error": None if session.error_is_old else job.error,
    }


def _side(side: Side) -> dict[str, Any]:
    counts = Counter(label for label in side.labels if label is not None)
    return {
        "images": len(side.items),
        "waiting": len(side.waiting),
        "pictures": bool(side.items) and side.items[0].thumbnail is not None,
        "features": side.table is not None and side.items[0].thumbnail is None,
        "faces": list(range(min(len(side.items), FACES))),
        "classes": sorted(counts.items()),
        "left_out": side.left_out[:FEW],
        "left_out_count": len(side.left_out),
        "key": side.key,
    }


def _result(outcome: Outcome, session: Session) -> dict[str, Any]:
    data, before = outcome.data, None if outcome.before is None else outcome.before.tolist()
    images = [
        {
            **image,
            "was": None if before is None else before[i],
            "truth": int(outcome.truth[i]),
            "picture": outcome.items[i].thumbnail is not None,
        }
        for i, image in enumerate(data["images"])
    ]
    right, known = outcome.right(outcome.answer.labels)
    alone = outcome.right(outcome.answer.independent)[0]
    return {
        **data,
        "images": images,
        "number": session.answers,
        "given": sorted(outcome.given.items()),
        "known": {"count": known, "right": right, "alone": alone} if known else None,
        "again": before is not None,
        "layers": outcome.layers is not None,
        "files": any(item.content is not None for item in outcome.items),
        "command": command_line(outcome, session.corrections),
        "doubtful": DOUBTFUL,
    }


def layers_data(outcome: Outcome) -> dict[str, Any] | None:
    """The class of each image after each layer and how sure that is, and the shares of the classes."""
    if outcome.layers is None:
        return None
    sure, labels = outcome.layers.max(-1)
    shares = outcome.layers.mean(1)
    return {
        "labels": labels.tolist(),
        "sure": [[round(v, 2) for v in row] for row in sure.tolist()],
        "shares": [[round(v, 4) for v in row] for row in shares.tolist()],
    }
