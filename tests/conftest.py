"""Shapes written in signatures are checked while the tests run."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

CHECKED = [
    "unem.core.em",
    "unem.core.laws",
    "unem.learning.unrolled",
    "unem.data.source",
    "unem.core.rows",
    "unem.core.whitening",
    "unem.core.leave_one_out",
    "unem.core.copies",
    "unem.evidence.likelihood",
    "unem.evidence.shift",
    "unem.evidence.linear",
    "unem.evidence.fitted",
    "unem.core.task",
    "unem.evaluation.metrics",
]
CHECKED += [
    f"unem.core.numerics.{name}" for name in ("dirichlet", "newton", "permutation", "special")
]  # not the kernels
install_import_hook(CHECKED, "beartype.beartype")

import torch  # noqa: E402

from helpers.shared import shared_files  # noqa: E402

torch.set_num_threads(1)  # the tests run in parallel processes; small tensors gain nothing from threads that wait

settings.register_profile("unem", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unem")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def toy():
    from helpers.families import toy_features

    return toy_features()


def pytest_report_header() -> str:
    return f"reference data: {'found' if shared_files('parity/*.pt') else 'absent, tests that need it are skipped'}"
