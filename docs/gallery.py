"""Write the gallery: a page for each example of examples/, with its picture and what it prints, and one with all.

Run: python docs/gallery.py [NAME …]. It runs the examples (all of them when none is named), a minute on one core. A
test runs each example and compares the pages with what this writes; pictures and printed numbers are those of the last
run.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
EXAMPLES = FOLDER.parent / "examples"
WRITTEN = "<!-- Written by docs/gallery.py from examples/: change the example, then run it again. -->"
TOPICS = {
    "label": ("Label", ("folder", "rare_classes", "none_of_these", "corrections")),
    "measure": ("Measure", ("compare", "situations")),
    "learn": ("Learn", ("schedule", "layers")),
    "extend": ("Extend", ("law", "method")),
    "serve": ("Serve", ("stream",)),
}
LONGER = """
## Longer programs

They take options and minutes, and write tables:

* `examples/sklearn_estimator.py`: the estimator beside scikit-learn's own, on digits and on embeddings of text
  ([In scikit-learn](../estimator.md)).
* `examples/pretrain_to_unem.py`: from photographs to a pre-trained network, its features and UNEM's accuracy on new
  classes ([Pre-training a network](../pretraining.md)).
"""


@dataclass(frozen=True)
class Example:
    """One script: its docstring is the title, a line and the text, the rest the code."""

    topic: str
    name: str

    @property
    def path(self) -> Path:
        return EXAMPLES / self.topic / f"{self.name}.py"

    @property
    def picture(self) -> Path:
        return FOLDER / "images" / "gallery" / f"{self.name}.png"

    @property
    def page(self) -> Path:
        return FOLDER / "gallery" / f"{self.name}.md"

    @property
    def parts(self) -> tuple[str, str, str]:
        """Title, text and code."""
        source = self.path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        title, _, text = (ast.get_docstring(tree) or "").partition("\n\n")
        code = "\n".join(source.splitlines()[tree.body[0].end_lineno :])
        text = re.sub(r"docs/([\w-]+\.md)", _linked, " ".join(text.split()))
        return title.rstrip("."), text.replace("``", "`"), code

    def run(self) -> str:
        """Run it, keep its picture, and give what it prints."""
        environment = {**os.environ, "MPLBACKEND": "Agg", "MATPLOTLIBRC": str(FOLDER / "matplotlibrc")}
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(self.path)]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{self.path}\n{done.stderr}")
            self.picture.parent.mkdir(exist_ok=True, parents=True)
            self.picture.write_bytes((Path(folder) / f"{self.name}.png").read_bytes())
        return done.stdout

    def printed(self) -> str:
        """What it printed when the page was written."""
        match = re.search(r"```text\n(.*?)```", self.page.read_text(encoding="utf-8"), re.DOTALL)
        return match[1] if match else ""


def _linked(match: re.Match[str]) -> str:
    title = (FOLDER / match[1]).read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
    return f"[{title}](../{match[1]})"


ALL = [Example(topic, name) for topic, (_, names) in TOPICS.items() for name in names]


def example_page(example: Example, printed: str) -> str:
    """The page of one example."""
    title, text, code = example.parts
    place = f"examples/{example.topic}/{example.name}.py"
    lines = [f"# {title}", "", WRITTEN, "", text, ""]
    lines += [f"![{title}](../images/gallery/{example.name}.png)", ""]
    lines += ["It prints:", "", "```text", printed.rstrip("\n"), "```", ""]
    lines += [f"The whole of `{place}`:", "", "<!-- not run: the tests run the example itself -->"]
    lines += ["```python", code.strip("\n"), "```", ""]
    return "\n".join(lines)


def index() -> str:
    """The page with all of them."""
    lines = ["# Gallery", "", WRITTEN, "", "Short programs, one idea each, on digits and shapes that need no download;"]
    lines += [f"each runs in a few seconds (`python examples/{ALL[0].topic}/{ALL[0].name}.py`) and writes the picture"]
    lines += ["that is shown here."]
    for topic, (title, _) in TOPICS.items():
        lines += ["", f"## {title}", "", '<div class="gallery" markdown>', ""]
        for example in (e for e in ALL if e.topic == topic):
            head = example.parts[0]
            lines += [f"[![](../images/gallery/{example.name}.png) {head}]({example.name}.md)", ""]
        lines += ["</div>"]
    return "\n".join(lines) + "\n" + LONGER


def pages() -> dict[Path, str]:
    """Every page as it should be, with what the examples printed in their last run."""
    return {e.page: example_page(e, e.printed()) for e in ALL} | {FOLDER / "gallery" / "index.md": index()}


if __name__ == "__main__":
    (FOLDER / "gallery").mkdir(exist_ok=True)
    for one in ALL:
        if not sys.argv[1:] or one.name in sys.argv[1:]:
            one.page.write_text(example_page(one, one.run()), encoding="utf-8")
            print(one.page, flush=True)
    for page, text in pages().items():
        page.write_text(text, encoding="utf-8")
