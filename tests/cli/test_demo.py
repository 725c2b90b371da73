"""`unem demo`."""

from __future__ import annotations

import unem
from helpers.command_line import run


def test_demo(tmp_path):
    done = run("demo", "-o", tmp_path / "demo", "--tasks", "20", "--quiet")
    assert done.returncode == 0, done.stderr
    names = {p.name for p in (tmp_path / "demo").iterdir()}
    assert "report.html" in names
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "unem-gaussian" in page
    assert "<svg" in page
    assert "data:image/png;base64," in page
    for address in ('src="http', "src='http", 'href="http', "@import", "url(http"):
        assert address not in page  # nothing is fetched
    assert unem.Schedule.load(tmp_path / "demo" / "unem-dirichlet.json").law == "dirichlet"
