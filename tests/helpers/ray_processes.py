"""Which processes of a Ray cluster belong to a test."""

from __future__ import annotations

import os
from pathlib import Path


def descendants(title: bytes) -> list[int]:
    """Processes called so that descend from this one: another cluster on this machine is not ours."""
    family = _parents()
    ours = []
    for pid in family:
        ancestor = pid
        while ancestor > 1 and ancestor != os.getpid():
            ancestor = family.get(ancestor, 0)
        try:
            called_so = title in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if ancestor == os.getpid() and called_so:
            ours.append(pid)
    return ours


def _parents() -> dict[int, int]:
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            found[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
    return found
