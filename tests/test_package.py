"""Promises about the package itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import unem
import unem.vision

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
        "starlette",
        "uvicorn",
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


SCREEN = 50  # lines of a function without its docstring
ALONE = ("_checks", "_extras", "_io", "_names", "_version", "_words")  # modules beside the folders, for all of them


def modules():
    return [(path.relative_to(SOURCE), ast.parse(path.read_text())) for path in sorted(SOURCE.rglob("*.py"))]


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def test_from_outside_a_folder_only_public_names_are_used():
    """import-linter checks the order of the folders; this, that nobody reaches into another one."""
    for path, tree in modules():
        folder = path.parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("unem."):
                continue
            first, *rest = node.module.split(".")[1:]
            names = [*rest, *(alias.name for alias in node.names)]
            if first not in (folder, *ALONE):
                assert not any(map(is_private, names)), f"{path}:{node.lineno} imports {node.module}: {names}"


def test_no_module_is_called_like_a_function_it_exports():
    for path, tree in modules():
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        package = SOURCE / path.parent / "__init__.py"
        exported = package.read_text() if package.exists() else ""
        if path.stem in functions and path.parts[0] != "cli":
            assert f'"{path.stem}"' not in exported, f"{path} hides its module behind a function"


def test_modules_and_functions_are_short():
    for path, tree in modules():
        source = (SOURCE / path).read_text()
        assert source.count("\n") < 500, path
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and path.stem != "triton_dirichlet":
                docstring = ast.get_docstring(node, clean=False)
                length = node.end_lineno - node.lineno + 1 - (docstring.count("\n") + 1 if docstring else 0)
                assert length <= SCREEN, f"{path}: {node.name} has {length} lines"


def test_the_top_level_is_small():
    assert len(unem.__all__) <= 28


def test_everything_public_exists_and_is_documented():
    for name in set(unem.__all__) - {"__version__"}:
        assert getattr(unem, name).__doc__, name


@pytest.mark.parametrize("package", [unem, unem.vision], ids=lambda package: package.__name__)
def test_public_names_are_imported_from_where_type_checkers_see_them(package):
    """Each name comes from its folder when it is first used."""
    tree = ast.parse(Path(package.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert set(seen) == {*package.__all__} - {"__version__"}
    for name, module in seen.items():
        assert getattr(package, name) is getattr(sys.modules[module], name), name
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'no_such_name'"):
        _ = package.no_such_name


@pytest.mark.parametrize(
    "program",
    [
        "import unem\nunem.InputError, unem.__version__",
        "import unem, unem.vision\nunem.vision.decoding.ImageError",
        "import unem.vision.decoding.worker",
    ],
)
def test_torch_is_imported_when_it_is_needed(program):
    """The command line answers, and processes that decode start, before torch is there."""
    program += "\nimport sys\nassert 'torch' not in sys.modules\nunem.data.Protocol"
    subprocess.run([sys.executable, "-c", program], check=True)
