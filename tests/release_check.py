"""What must hold before a release: wheel and sdist build, pass ``twine check``, and work in a clean environment.

The wheel is installed with the versions of constraints.txt and tried away from the source: version, ``presets``,
``demo``, ``predict`` on pictures that are drawn here, and mypy on a program that uses it. Nothing is published.

Run: python tests/release_check.py [--keep FOLDER] (``make release-check`` does); some minutes, most of them installing.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ("build", "twine")
DRAW = """
import sys
from pathlib import Path
import numpy as np
from PIL import Image
random = np.random.default_rng(0)
for k, (name, colour) in enumerate({"red": (200, 40, 40), "green": (40, 180, 60), "blue": (50, 60, 200)}.items()):
    for i in range(9):
        folder = Path("few", name) if i < 3 else Path("photos")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(random.normal(0, 25, (64, 64, 3)) + colour, 0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{name}_{i}.png")
"""
TYPED = "import unem\n\nlabels: list[int] = unem.create_method('evidence')\n"
"""A program with a mistake that only a type checker sees, where the package brings its types."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the release and try it in a clean environment.")
    parser.add_argument("--keep", type=Path, help="folder for everything that is made; a temporary one unless given")
    keep = parser.parse_args().keep
    if keep is not None:
        keep.mkdir(parents=True)
        check(keep.resolve())
        return
    with tempfile.TemporaryDirectory() as folder:
        check(Path(folder).resolve())


def check(folder: Path) -> None:
    version = re.findall(r'__version__ = "(.+)"', (ROOT / "src/unem/_version.py").read_text(encoding="utf-8"))[0]
    check_texts(version)
    tools = environment(folder / "tools")
    run("install build and twine", [tools / "python", "-m", "pip", "install", "-q", *TOOLS])
    run("build", [tools / "python", "-m", "build", "--outdir", folder / "dist", ROOT])
    wheel, sdist = folder / f"dist/unem-{version}-py3-none-any.whl", folder / f"dist/unem-{version}.tar.gz"
    run("twine check", [tools / "twine", "check", "--strict", wheel, sdist])
    check_contents(wheel, sdist)
    clean = environment(folder / "clean")
    install = [clean / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    run("install the wheel", [*install, f"{wheel}[images]", "mypy"])
    check_commands(clean, folder / "try", version)
    check_types(clean, folder / "try")
    print(f"unem {version}: wheel and sdist build, install and work")


def check_texts(version: str) -> None:
    """The changelog and the citation speak of this version."""
    for name, expected in (("CHANGELOG.md", f"\n## {version}"), ("CITATION.cff", f"\nversion: {version}\n")):
        if expected not in (ROOT / name).read_text(encoding="utf-8"):
            sys.exit(f"{name}: expected {expected.strip()!r}")


def check_contents(wheel: Path, sdist: Path) -> None:
    """Nothing is missing from the wheel but caches, and nothing else is in it; the sdist has tests and docs too."""
    source = ROOT / "src"
    files = {p.relative_to(source).as_posix() for p in source.glob("unem/**/*") if p.is_file()}
    expected = {name for name in files if "__pycache__" not in name and not name.endswith((".pyc", ".so"))}
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    if inside != expected:
        sys.exit(f"{wheel.name}: differs from src in {sorted(inside ^ expected)}")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    for name in ("README.md", "LICENSE", "CITATION.cff", "constraints.txt", "tests/test_docs.py", "docs/index.md"):
        if name not in names:
            sys.exit(f"{sdist.name}: {name} is missing")


def check_commands(clean: Path, folder: Path, version: str) -> None:
    folder.mkdir()
    unem = clean / "unem"
    answer = run("unem --version", [unem, "--version"], folder)
    if answer.strip() != f"unem {version}":
        sys.exit(f"unem --version: expected {version}, got {answer!r}")
    if "unem-gaussian/mini-imagenet" not in run("unem presets", [unem, "presets", "unem-gaussian/*"], folder):
        sys.exit("unem presets: the published schedules are missing")
    run("unem demo", [unem, "demo", "-o", "demo", "--tasks", "50", "-q"], folder)
    run("draw pictures", [clean / "python", "-c", DRAW], folder)
    predict = ["predict", "--support", "few", "--query", "photos", "-o", "labels.csv", "--contact-sheet", "sheet.html"]
    run("unem predict", [unem, *predict], folder)
    for name in ("demo/report.html", "sheet.html"):
        if not (folder / name).stat().st_size:
            sys.exit(f"{name}: empty")
    with open(folder / "labels.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    right = sum(row["path"].startswith(row["label"]) for row in rows)
    print(f"  {right} of {len(rows)} pictures are labelled right")
    if (right, len(rows)) != (18, 18):
        sys.exit("unem predict: expected 18 right labels")


def check_types(clean: Path, folder: Path) -> None:
    """mypy sees the types of the installed package: it finds the one mistake of the program, and none without it."""
    program = folder / "program.py"
    good = TYPED.replace("list[int]", "unem.methods.Method").replace("import unem", "import unem.methods")
    program.write_text(good, encoding="utf-8")
    run("mypy", [clean / "python", "-m", "mypy", "--strict", program.name], folder)
    program.write_text(TYPED, encoding="utf-8")
    command = [str(clean / "python"), "-m", "mypy", "--strict", program.name]
    done = subprocess.run(command, cwd=folder, env=surroundings(), capture_output=True, text=True, check=False)
    if done.returncode != 1 or "[assignment]" not in done.stdout or "Found 1 error" not in done.stdout:
        sys.exit(f"mypy: expected one error of assignment, got {done.stdout}{done.stderr}")


def environment(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    return folder / "bin"


def surroundings() -> dict[str, str]:
    """Without what would let the source, or another environment, be found."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(what: str, command: list[str | Path], folder: Path = ROOT) -> str:
    """Its output; ends with it when the command fails."""
    start = time.perf_counter()
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=surroundings(), capture_output=True, text=True, check=False)
    print(f"{what}: {'done' if done.returncode == 0 else 'failed'} in {time.perf_counter() - start:.0f} s", flush=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
