"""What a visitor takes away."""

from __future__ import annotations

import csv
import io
import zipfile

import pytest

from helpers import app_data
from helpers.app_data import SMALL, png
from unem.web.downloads import corrections_csv, folders_zip, labels_csv
from unem.web.session import Session
from unem.web.uploads import Received


@pytest.fixture
def session(models):
    made = Session(SMALL)
    names = {"=cmd/1.png": png(1), "<b>/2.png": png(2)}
    made.receive("support", Received("a.zip", app_data.zipped(names)))
    made.receive("query", Received("=1+1.png", png(3)))
    made.receive("query", Received('b,c".png', png(4)))
    made.receive("query", Received("deep/=1+1.png", png(5)))
    made.run(made.labelled(models))
    return made


def test_the_table_is_csv_that_no_spreadsheet_computes(session):
    rows = list(csv.DictReader(io.StringIO(labels_csv(session))))
    assert [row["path"] for row in rows] == ["'=1+1.png", 'b,c".png', "deep/=1+1.png"]
    assert {row["label"] for row in rows} <= {"'=cmd", "<b>"}
    for row in rows:
        assert float(row["p(=cmd)"]) + float(row["p(<b>)"]) == pytest.approx(1, abs=2e-4)
        assert float(row["probability"]) == pytest.approx(max(float(row["p(=cmd)"]), float(row["p(<b>)"])), abs=1e-4)


def test_folders_hold_every_image_once_and_lead_nowhere_else(session):
    session.correct({0: 1, 2: 1})
    with zipfile.ZipFile(io.BytesIO(b"".join(folders_zip(session)))) as archive:
        names = archive.namelist()
        assert archive.read("=cmd/=1+1.png") == png(3)
        assert archive.read("=cmd/=1+1-2.png") == png(5)
    assert len(names) == 4
    assert all(".." not in n and not n.startswith("/") for n in names)
    assert corrections_csv(session).splitlines()[1] == "'=1+1.png,'=cmd"


def test_folders_end_where_the_images_are_removed_meanwhile(session):
    pieces = folders_zip(session)
    next(pieces)
    session.close()
    assert len(list(pieces)) <= 1
