"""What a visitor takes away: the table, the corrections, the settings, the images in folders of their classes."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from unem._io import to_json
from unem.errors import InputError
from unem.inference import NONE_OF_THESE, csv_text, folder_names
from unem.web.outcome import Outcome
from unem.web.session import Session

__all__ = ["command_line", "corrections_csv", "folders_zip", "labels_csv", "settings_json"]

MOST_COLUMNS = 100  # classes whose probabilities are all written down


def labels_csv(session: Session) -> str:
    """The one table of labels, with the class of each image by itself, and whether the visitor said it."""
    outcome = _outcome(session)
    labelling = outcome.labelling(session.corrections)
    names = outcome.class_names
    more = {"independently": [names[k] for k in outcome.answer.independent.tolist()]}
    return csv_text({**labelling.columns(), **more, **labelling.columns(all_probabilities=len(names) <= MOST_COLUMNS)})


def corrections_csv(session: Session) -> str:
    """What the visitor has said, for the next run on the command line."""
    outcome = _outcome(session)
    labelling = outcome.labelling()
    names = {NONE_OF_THESE: labelling.none_name, **dict(enumerate(outcome.class_names))}
    given = sorted(session.corrections.items())
    return csv_text({"path": [outcome.items[i].name for i, _ in given], "label": [names[k] for _, k in given]})


def settings_json(session: Session) -> str:
    """What determined the labels: method, schedule with its numbers, settings, versions."""
    outcome = _outcome(session)
    schedule: Any = outcome.answer.choice.schedule
    about = outcome.labelling(session.corrections).about()
    command = command_line(outcome, session.corrections)
    return to_json({**about, "schedule_values": None if schedule is None else schedule.to_dict(), "command": command})


def command_line(outcome: Outcome, corrections: Mapping[int, int]) -> str | None:
    """The command that does the same with folders ``examples`` and ``images``; None where features were sent."""
    settings = outcome.settings
    if not outcome.backbone:
        return None
    options = {"support": "examples", "query": "images", "output": "labels.csv"}
    options |= {name: getattr(settings, name) for name in ("backbone", "method") if getattr(settings, name) != "auto"}
    options |= {"decision": settings.decision} if settings.decision != "accuracy" else {}
    options |= {"none-of-these": ""} if settings.none_of_these else {}
    options |= {"corrections": "corrections.csv"} if corrections else {}
    words = [f"--{name} {shlex.quote(value) if value else value}".strip() for name, value in options.items()]
    return " ".join(["unem predict", *words])


def folders_zip(session: Session) -> Iterator[bytes]:
    """The images as they were sent, in folders of their classes; piece by piece, so that no second copy is made.

    It ends where the visitor's images are removed meanwhile.
    """
    outcome = _outcome(session)
    if all(item.content is None for item in outcome.items):
        raise InputError("There are no image files to put into folders: features were sent, or digits are shown.")
    return _zipped(session, outcome.labelling(session.corrections).rows, _places(outcome, session.corrections))


def _places(outcome: Outcome, corrections: Mapping[int, int]) -> list[str]:
    """Where each image goes; no two at one place."""
    labelling = outcome.labelling(corrections)
    folders = folder_names([*outcome.class_names, labelling.none_name])
    novel, places, taken = labelling.answer.none_of_these, [], set[str]()
    for i, label in enumerate(labelling.answer.labels.tolist()):
        folder = folders[-1] if novel is not None and bool(novel[i]) else folders[label]
        stem, dot, ending = outcome.items[i].name.rsplit("/", 1)[-1].rpartition(".")
        place, number = f"{folder}/{stem}{dot}{ending}", 1
        while place.casefold() in taken:
            number += 1
            place = f"{folder}/{stem}-{number}{dot}{ending}"
        taken.add(place.casefold())
        places.append(place)
    return places


def _zipped(session: Session, rows: list[Any], places: list[str]) -> Iterator[bytes]:
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("labels.csv", labels_csv(session))
        for i in range(len(rows)):
            outcome = session.outcome
            if outcome is None or i >= len(outcome):
                return
            content = outcome.items[i].content
            if content is not None:
                archive.writestr(zipfile.ZipInfo(places[i], (1980, 1, 1, 0, 0, 0)), content)
            del outcome, content  # whoever stops reading keeps nothing of the visitor's
            yield pipe.taken()
    yield pipe.taken()


class _Pipe(io.RawIOBase):
    """A file that is read as it is written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._parts.append(bytes(content))
        return len(content)

    def taken(self) -> bytes:
        out, self._parts = b"".join(self._parts), []
        return out


def _outcome(session: Session) -> Outcome:
    if session.outcome is None:
        raise InputError("Nothing is labelled yet.")
    return session.outcome
