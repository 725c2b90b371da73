"""The table that a visitor takes away."""

from __future__ import annotations

import csv
import io

import pytest

from helpers import app_data
from helpers.app_data import SMALL, png
from unem.web.downloads import csv_of
from unem.web.session import Session


def test_the_table_is_csv_that_no_spreadsheet_computes(models):
    session = Session(SMALL)
    names = {"=cmd/1.png": png(1), "<b>/2.png": png(2)}
    session.receive("support", "a.zip", app_data.zipped(names))
    session.receive("query", "=1+1.png", png(3))
    session.receive("query", 'b,c".png', png(4))
    rows = list(csv.DictReader(io.StringIO(csv_of(session.label(models)))))
    assert [row["path"] for row in rows] == ["'=1+1.png", 'b,c".png']
    assert {row["label"] for row in rows} <= {"'=cmd", "<b>"}
    for row in rows:
        assert float(row["p(=cmd)"]) + float(row["p(<b>)"]) == pytest.approx(1, abs=2e-4)
        assert float(row["probability"]) == pytest.approx(max(float(row["p(=cmd)"]), float(row["p(<b>)"])), abs=1e-4)
