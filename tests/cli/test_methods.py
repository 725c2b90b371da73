"""`unem methods`."""

from __future__ import annotations

import json

from helpers.command_line import invoke, said
from unem.methods import list_methods


def test_listing():
    names = {m["name"] for m in json.loads(invoke("methods", "--json").stdout)}
    assert names >= {
        "prototypes", "soft-kmeans", "em-gaussian", "paddle", "em-dirichlet", "hard-em-dirichlet", "unem-gaussian",
        "unem-dirichlet", "zero-shot",
    }  # fmt: skip
    assert "paddle" in invoke("methods").stdout


def test_summaries_have_no_marks_of_docstrings():
    assert any("``" in m.summary for m in list_methods())  # or nothing is tested
    assert "``" not in invoke("methods").stdout
    assert "``" not in invoke("methods", "--json").stdout


def test_a_pattern_that_matches_nothing():
    assert "PATTERN: no method matches 'zz*'" in said("methods", "zz*")
