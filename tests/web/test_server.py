"""Where the server listens, and by which names."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'unem[app]'")

from unem.cli import application
from unem.errors import InputError
from unem.web.server import hosts_for, listening


def test_a_port_in_use_is_said():
    with listening("127.0.0.1", 0) as sock, pytest.raises(InputError, match="try another port"):
        listening("127.0.0.1", sock.getsockname()[1])


def test_other_computers_need_a_name_to_call_it_by():
    with pytest.raises(InputError, match=r"'0\.0\.0\.0' can be reached from other computers"):
        hosts_for("0.0.0.0")
    assert hosts_for("0.0.0.0", ("Photos.example", "[fe80::1]"))[-2:] == ("photos.example", "fe80::1")
    for wrong in ("", "*", "a:80", "http://a", "a b", "*.example"):
        with pytest.raises(InputError, match="allow_host: expected a name"):
            hosts_for("0.0.0.0", (wrong,))
    done = CliRunner().invoke(application, ["app", "--host", "0.0.0.0", "--port", "0"])
    assert done.exit_code == 2
    assert "--host: '0.0.0.0' can be reached from other computers" in " ".join(done.output.split())


def test_without_its_packages_there_is_a_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    done = CliRunner().invoke(application, ["app", "--port", "0"])
    assert done.exit_code == 2
    assert ".[app]" in done.output
