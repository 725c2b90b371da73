"""The pages say nothing that does not run, and they build without a warning."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import unem
import unem.cli
import unem.methods._registry as registry
from helpers.browsing import launched, opened
from helpers.pages import PAGES, ROOT, blocks, command_line, parsed, words_of
from unem.experiments import read_spec

DOCS = [page for page in PAGES if page.startswith("docs/")]


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> Path:
    """What the pages take for granted: feature files, a schedule, photographs."""
    folder = tmp_path_factory.mktemp("pages")
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(1080) % 12
    table = 2 * torch.randn(12, 32, generator=generator)[labels] + torch.randn(1080, 32, generator=generator)
    split = np.array(["train", "val", "test"])[np.arange(1080) // 12 % 3]
    text = torch.stack([table[labels == k].mean(0) for k in range(12)]).numpy()
    common = {"features": table.numpy(), "labels": labels.numpy(), "split": split}
    np.savez(folder / "features.npz", **common)
    np.savez(folder / "clip.npz", **common, text_features=text)
    unem.Schedule(class_balance=(1.0, 2.0), temperature=(1.0, 1.0), law="gaussian").save(folder / "schedule.json")
    photographs(folder / "photos", classes=5, images=12)
    photographs(folder / "few", classes=3, images=2)
    photographs(folder / "data" / "oxford_pets", classes=3, images=2)
    shutil.copytree(folder / "photos" / "kind_0", folder / "new")
    return folder


def photographs(folder: Path, classes: int, images: int) -> None:
    """Small pictures, each class in its own colour."""
    from PIL import Image

    random = np.random.default_rng(0)
    for c in range(classes):
        (folder / f"kind_{c}").mkdir(parents=True)
        for i in range(images):
            pixels = random.integers(0, 120, (48, 48, 3)) + np.array([30 * c, 120 - 30 * c, 60])
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"kind_{c}" / f"{i}.jpg")


@pytest.fixture
def own_registry(monkeypatch):
    """Methods that a page registers are gone afterwards."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(not b.why and b.language in ("python", "console") for b in blocks(p))]
)
@pytest.mark.usefixtures("own_registry")
def test_code_runs(page, files, tmp_path, monkeypatch):
    """Block by block, in one folder and one namespace, Python and commands alike. (The README's commands are examples:
    they are parsed.)"""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command_line()  # imports the topics
    namespace = {"__name__": "page"}
    monkeypatch.setitem(sys.modules, "page", type(sys)("page"))  # dataclasses look their module up
    for block in blocks(page):
        if block.why:
            continue
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, page, "exec"), namespace)
        elif block.language == "console" and page != "README.md":
            for line in block.commands:
                assert words_of(line)[0] == "unem", f"{page}:{block.line}: {line}: say why it is not run"
                done = CliRunner().invoke(unem.cli.application, words_of(line)[1:])
                assert done.exit_code == 0, (f"{page}:{block.line}", line, done.output)


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_understood(page):
    """Every command line parses: command, options and the kind of their values."""
    for block in blocks(page):
        for line in block.commands:
            words = words_of(line)
            if words[0] == "unem":
                assert list(parsed(words[1:])), line
            elif words[0] == "python":
                assert (ROOT / words[1]).is_file(), line
            elif words[0] == "make":
                assert re.search(rf"(?m)^{words[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8")), line
            else:
                assert words[0] in ("pip", "python3", "ray"), line


@pytest.mark.parametrize("page", PAGES)
def test_blocks_are_of_a_known_kind(page):
    """So that none escapes: a command in a plain block would."""
    for block in blocks(page):
        assert block.language in ("", "python", "console", "toml", "json", "text"), (page, block.line)
        if block.language == "console":
            assert block.commands, f"{page}:{block.line}: no line begins with '$ '"
        if block.language in ("", "text"):
            assert not re.search(r"(?m)^(\$ |unem |python |pip |make )", block.text), (page, block.line)
        if block.language == "python":
            compile(block.text, page, "exec")


def test_what_does_not_parse_is_found():
    for words in (
        ["evaluate"],
        ["eval", "f.npz", "--shot", "5"],
        ["eval"],
        ["eval", "f.npz", "--shots", "five"],
        ["results"],
    ):
        with pytest.raises(Exception, match=r".+"):
            list(parsed(words))


def test_the_sweep_of_the_page_is_one(tmp_path):
    found = [b.text for b in blocks("docs/many-machines.md") if b.language == "toml"]
    assert tomllib.loads(found[0])["seed"] == 7
    (tmp_path / "sweep.toml").write_text(found[0], encoding="utf-8")
    assert read_spec(tmp_path / "sweep.toml")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, str]:
    """The pages as a site, and what mkdocs says."""
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


def test_pages_build_without_a_warning(built):
    """Links, anchors and images resolve, and no page is left out of the navigation."""
    site, said = built
    assert "WARNING" not in said
    assert (site / "results" / "paper.html").is_file()
    page = (site / "api" / "core.html").read_text(encoding="utf-8")
    assert 'id="unem.core.em.gem"' in page
    assert ":class:" not in page
    fetched = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+', page)
    assert not fetched, "pages need nothing from elsewhere"


def test_search_works_from_disk(built):
    with launched() as browser, opened(browser, (built[0] / "gallery" / "index.html").as_uri()) as page:
        page.locator("label[for=__search]:visible, input.md-search__input:visible").first.click()
        page.locator("input.md-search__input").press_sequentially("whitened")
        page.get_by_text(re.compile(r"\d+ matching documents")).wait_for()


def test_everything_public_is_in_the_reference():
    """Each name of `unem` has its place."""
    text = "\n".join(PAGES[p].read_text(encoding="utf-8") for p in DOCS if p.startswith("docs/api/"))
    listed = set(re.findall(r"(?m)^(?:::: |      heading: )unem\.(?:[\w.]+\.)?(\w+)$", text))
    assert set(unem.__all__) - {"__version__"} <= listed


def script(name, monkeypatch):
    """A module of the docs folder."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module(name)


def test_pictures_can_be_drawn(monkeypatch):
    """The quick ones of them: the script follows the library."""
    pictures = script("pictures", monkeypatch)
    for name in ("loss", "leave_one_out", "directions"):
        assert getattr(pictures, name)().axes


def test_the_figure_is_what_its_script_draws(monkeypatch):
    unrolled = script("unrolled", monkeypatch)
    assert (ROOT / "docs" / "images" / "unrolled.svg").read_text(encoding="utf-8") == unrolled.svg()


@pytest.mark.parametrize("page", ["methods.md", "cli.md"])
def test_pages_written_from_the_code_are_current(page, monkeypatch):
    reference = script("reference", monkeypatch)
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert text == reference.PAGES[page](), "run python docs/reference.py"


def test_every_method_has_a_line():
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert [m.name for m in unem.list_methods() if text.count(f"\n| `{m.name}` |") != 1] == []


def test_every_command_has_a_heading():
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    below = [(n, list(getattr(c, "commands", {"": None}))) for n, c in command_line().commands.items()]
    names = [f"unem {name} {sub}".strip() for name, subs in below for sub in subs]
    assert sorted(re.findall(r"(?m)^### (.+)$", text)) == sorted(names)


def test_promises_name_tests_that_are_there():
    named = set(re.findall(r"tests/[\w/]+\.py(?:::\w+)?", (ROOT / "docs/reliability.md").read_text(encoding="utf-8")))
    assert len(named) > 15
    for name in named:
        file, _, function = name.partition("::")
        assert f"def {function}" in (ROOT / file).read_text(encoding="utf-8"), name


def test_every_table_of_figures_has_a_source():
    """Each page with a table of numbers is on docs/sources.md, whose files and scripts are there."""
    sources = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    listed = {*re.findall(r"\]\(([\w/-]+\.md)", sources), "sources.md"}
    figures = re.compile(r"(?m)^\|.*\|[^|\n]*\d\.\d[^|\n]*\|")
    for name, path in PAGES.items():
        page = name.removeprefix("docs/")
        if figures.search(path.read_text(encoding="utf-8")) and page not in ("README.md", "cli.md", "methods.md"):
            assert page in listed or page.startswith("gallery/"), f"{name}: where do its figures come from?"
    assert "README" in sources
    for file in re.findall(r"`((?:benchmarks|docs|examples|tests)/[\w./+-]+)", sources):
        assert (ROOT / file).exists(), file
    for script in re.findall(r"`python ([\w/]+\.py)", sources):
        assert (ROOT / script).is_file(), script
