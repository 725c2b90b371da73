"""Shapes written in signatures are checked while the tests run."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

CHECKED = ["unem.gem", "unem.classmodels", "unem.unrolled", "unem.drawing", "unem.task", "unem.evaluation.metrics"]
CHECKED += [f"unem.numerics.{name}" for name in ("dirichlet", "newton", "permutation", "special")]  # not the kernels
install_import_hook(CHECKED, "beartype.beartype")

import torch  # noqa: E402

torch.set_num_threads(1)  # the tests run in parallel processes; small tensors gain nothing from threads that wait

settings.register_profile("unem", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unem")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def shared_files(pattern: str) -> list[Path]:
    """Reference files kept outside the project; tests that need them are skipped, and say so, where they are not."""
    return sorted(SHARED.glob(pattern))


def pytest_report_header() -> str:
    return f"reference data: {'found' if shared_files('parity/*.pt') else 'absent, tests that need it are skipped'}"
