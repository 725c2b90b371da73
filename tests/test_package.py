"""Promises about the package itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import unem

SOURCE = Path(unem.__file__).parent


def test_importing_the_core_needs_only_the_core():
    """`import unem` must work where the command line's and the extras' packages are missing."""
    missing = [
        "typer",
        "rich",
        "matplotlib",
        "jinja2",
        "sklearn",
        "scipy",
        "PIL",
        "transformers",
        "datasets",
        "ray",
        "gradio",
    ]
    program = (
        f"import sys\nfor name in {missing}: sys.modules[name] = None\nimport unem\nunem.gem; unem.train; unem.evaluate"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_file_can_run_code_when_loaded():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        assert "weights_only=False" not in text, path
        imported = {a.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import) for a in node.names}
        assert not imported & {"pickle", "dill", "joblib", "cloudpickle"}, path


def test_the_loop_knows_nothing_of_features_datasets_or_the_command_line():
    """A room imports only from the rooms before it in the flow."""
    forbidden = ("unem.data", "unem.methods", "unem.evaluation", "unem.learning.trainer", "unem.cli", "unem.report")
    for name in ("core",):
        for path in (SOURCE / name).rglob("*.py"):
            imports = [n.module for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
            assert not [i for i in imports if i and i.startswith(forbidden)], path


def test_everything_public_exists_and_is_documented():
    for name in set(unem.__all__) - {"__version__"}:
        assert getattr(unem, name).__doc__, name
