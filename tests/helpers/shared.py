"""Reference files that are kept outside the project."""

from __future__ import annotations

from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared"


def shared_files(pattern: str) -> list[Path]:
    """Files that match; tests that need them are skipped, and say so, where there are none."""
    return sorted(SHARED.glob(pattern))
