"""The page itself, in Gradio: components, what happens when something is done to them, and nothing else."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import gradio as gr
import torch

from unem.errors import InputError
from unem.vision.images import ENDINGS
from unem.web import views
from unem.web.downloads import csv_of
from unem.web.models import Models, methods_for
from unem.web.outcome import Order
from unem.web.session import Session
from unem.web.uploads import FEATURE_ENDINGS, MB
from unem.web.visitors import Sessions

__all__ = ["build", "style", "theme"]

ALL = "all classes"
ORDERS: list[tuple[str, Order]] = [
    ("doubtful", "doubt"),
    ("sure", "confidence"),
    ("by class", "class"),
    ("by name", "name"),
]
HEAD = """<header class="u-head"><h1>Label a batch of images from a few examples</h1>
<p>Give a few labelled images of each class and a batch of others. The batch is labelled <em>together</em>, so that its
images also learn from each other. Nothing is sent on, and nothing is kept.</p></header>"""
WELCOME = """<div class="u-welcome"><h2>Nothing labelled yet</h2>
<p>Try an example, or use your own images:</p><ol><li>Examples: a zip or folders, one folder for each class
(<code>cat/1.jpg</code>, <code>dog/1.jpg</code> …). One to five images of a class are enough.</li>
<li>Images to label: a zip, a folder or files.</li><li>Press “Label the images”, look at the doubtful ones first,
correct some, and label again.</li></ol></div>"""
DROP = """<div class="u-drop" role="group" aria-label="${props.title}"><p>${props.hint}</p><div class="u-buttons">
<button type="button" data-open="u-files">Choose files</button>
<button type="button" data-open="u-folder">Choose a folder</button>
<button type="button" class="u-quiet" data-clear="yes">Remove all</button></div>
<input class="u-files" type="file" multiple tabindex="-1" aria-label="${props.title}: files">
<input class="u-folder" type="file" webkitdirectory tabindex="-1" aria-label="${props.title}: folder">
<progress max="1" value="0" hidden aria-label="Sending"></progress><p class="u-status" role="alert"></p></div>"""
SAVE = """(text) => { const link = document.createElement("a");
link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"})); link.download = "unem-labels.csv"; link.click();
setTimeout(() => URL.revokeObjectURL(link.href), 10000); }"""

GO_THERE = """() => { if (window.innerWidth < 760)
setTimeout(() => document.querySelector("#results").scrollIntoView({behavior: "smooth"}), 100); }"""


def style() -> str:
    return files("unem.web").joinpath("page.css").read_text(encoding="utf-8")


def theme() -> gr.themes.Base:
    """System fonts only, so that nothing is fetched from elsewhere."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Noto Sans", "Arial", "sans-serif"]
    code = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "DejaVu Sans Mono", "monospace"]
    return gr.themes.Default(primary_hue="blue", neutral_hue="slate", font=fonts, font_mono=code)


def _script(part: str) -> str:
    """One of the programs of ``page.js``."""
    whole = files("unem.web").joinpath("page.js").read_text(encoding="utf-8")
    return whole.split(f"//#{part}\n")[1].split("\n//#")[0]


def _in_sentences(function: Callable[..., Any]) -> Callable[..., Any]:
    """Whatever goes wrong is a sentence on the page; what should not have happened is also told in the terminal."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            message = str(error)
        except (MemoryError, torch.OutOfMemoryError):
            message = "This needs more memory than there is; try fewer images."
        except Exception:
            traceback.print_exc(file=sys.stderr)
            message = "Something went wrong inside the program; the terminal it runs in says more."
        raise gr.Error(views.text(message), duration=None, title="That did not work", print_exception=False)

    return run


def build(sessions: Sessions, models: Models, *, text: bool = False) -> gr.Blocks:
    """The page for some visitors and models; with ``text``, methods for models that know texts are offered."""
    page = gr.Blocks(title="unem", analytics_enabled=False, fill_width=False)
    with page:
        _Page(page, sessions, models, text)
    return page


class _Page:
    """Components by name, and what connects them."""

    def __init__(self, page: gr.Blocks, sessions: Sessions, models: Models, text: bool) -> None:
        self.sessions, self.models = sessions, models
        self.token, self.picked, self.number = gr.State(None), gr.State(None), gr.State(0)
        gr.HTML(HEAD)
        with gr.Row(equal_height=False):
            with gr.Column(scale=4, min_width=300, elem_classes="u-left-column"):
                self._inputs(text)
            with gr.Column(scale=8, min_width=300):
                self._results()
        self._connect(page)

    # -- components ----------------------------------------------------------------------------------------------------

    def _inputs(self, text: bool) -> None:
        with gr.Row():
            self.digits = gr.Button("Example: digits", min_width=120, interactive=False)
            self.shapes = gr.Button("Example: shapes", min_width=120, interactive=False)
        most = f"up to {self.sessions.limits.upload / MB:g} MB and {self.sessions.limits.images} images"
        gr.HTML(f'<p class="u-step">1. Labelled examples<small>one folder for each class; {most}</small></p>')
        self.support, self.support_sent = self._drop(
            "support", "Labelled examples", "Drop a zip, folders, or a feature file here"
        )
        gr.HTML('<p class="u-step">2. Images to label<small>any number of any of the classes</small></p>')
        self.query, self.query_sent = self._drop(
            "query", "Images to label", "Drop a zip, images, or a feature file here"
        )
        gr.HTML('<p class="u-step">3. How</p>')
        self.backbone = gr.Dropdown(
            [("EfficientNet-Lite0" if n == "auto" else n, n) for n in self.models.names],
            value=self.models.names[0],
            label="Backbone: what turns images into numbers",
            interactive=True,
        )
        self.method = gr.Dropdown(
            [("automatic" if m == "auto" else m, m) for m in methods_for(text)],
            value="auto",
            label="Method",
            interactive=True,
        )
        self.go = gr.Button("Label the images", variant="primary", size="lg", interactive=False)

    def _drop(self, side: str, title: str, hint: str) -> tuple[gr.HTML, gr.HTML]:
        zone = gr.HTML(
            "",
            html_template=DROP.replace("${props.title}", title).replace("${props.hint}", hint),
            js_on_load=_script("drop"),
            elem_id=f"drop-{side}",
            side=side,
            most=self.sessions.limits.upload,
            kinds=[*ENDINGS, *FEATURE_ENDINGS],
        )
        return zone, gr.HTML("", elem_id=f"sent-{side}")

    def _results(self) -> None:
        self.welcome = gr.HTML(WELCOME, elem_id="welcome")
        with gr.Column(visible=False, elem_id="results") as self.results:
            self.summary = gr.HTML(elem_id="summary")
            with gr.Tabs():
                with gr.Tab("Images"):
                    self._images()
                with gr.Tab("Compare"):
                    self.changes = gr.HTML(elem_id="changes")
                with gr.Tab("Layers"):
                    self.layers = gr.HTML("", js_on_load=_script("layers"), elem_id="layers")
            self.download = gr.Button("Download CSV", elem_id="download")
            self.csv = gr.Textbox(visible="hidden", label="CSV")

    def _images(self) -> None:
        with gr.Row():
            self.order = gr.Dropdown(ORDERS, value="doubt", label="Show first", interactive=True, min_width=140)
            self.only = gr.Dropdown([ALL], value=ALL, label="Of", interactive=True, min_width=140)
        with gr.Column(visible=False, elem_id="correction") as self.panel:
            self.chosen = gr.HTML()
            with gr.Row():
                self.label = gr.Dropdown([], label="Its class is", interactive=True, min_width=110)
                self.save = gr.Button("Save label", min_width=90)
                self.undo = gr.Button("Undo", min_width=60)
        self.again = gr.Button("Label again", variant="primary", visible=False, elem_id="again")
        self.gallery = gr.HTML(js_on_load=_script("gallery"), elem_id="gallery")

    # -- what happens --------------------------------------------------------------------------------------------------

    def _connect(self, page: gr.Blocks) -> None:
        how = [self.token, self.method, self.backbone]
        view = [self.token, self.order, self.only]
        shown = [self.results, self.welcome, self.summary, self.gallery, self.changes, self.layers]
        shown += [self.only, self.label, self.panel, self.again, self.picked, self.number]
        sides = [self.support_sent, self.query_sent]
        one = [self.chosen, self.label, self.panel, self.again, self.gallery, self.picked, self.number]
        busy: dict[str, Any] = {
            "concurrency_id": "compute",
            "concurrency_limit": 1,
            "show_progress_on": [self.welcome, self.summary],
        }
        light: dict[str, Any] = {"concurrency_limit": 8, "show_progress": "hidden"}
        latest = {**light, "trigger_mode": "always_last"}

        starting = [self.token, self.support, self.query, self.digits, self.shapes, self.go]
        page.load(self.begin, None, starting, api_visibility="private", **light)
        page.unload(self.leave)
        for side, zone, sent in (("support", self.support, self.support_sent), ("query", self.query, self.query_sent)):
            take, clear = functools.partial(self.take, side), functools.partial(self.clear, side)
            look: dict[str, Any] = {"concurrency_limit": 4, "show_progress_on": [sent], "trigger_mode": "multiple"}
            zone.upload(_in_sentences(take), self.token, [sent, *shown], api_visibility="private", **look)
            zone.clear(_in_sentences(clear), self.token, [sent, *shown], api_visibility="private", **light)
        for button, name in ((self.digits, "digits"), (self.shapes, "shapes")):
            run = functools.partial(self.example, name)
            done = button.click(_in_sentences(run), how, [*sides, *shown], api_visibility="private", **busy)
            done.success(None, None, None, js=GO_THERE)
        for button in (self.go, self.again):
            done = button.click(self.run, how, [*sides, *shown], api_visibility="private", **busy)
            done.success(None, None, None, js=GO_THERE)
        for box in (self.order, self.only):
            box.input(self.browse, view, [self.gallery, self.number], api_visibility="private", **latest)
        self.gallery.select(self.pick, [*view, self.picked, self.number], one, api_visibility="private", **latest)
        corrected = [*view, self.picked, self.number]
        self.save.click(self.correct, [*corrected, self.label], one, api_visibility="private", **light)
        self.undo.click(self.take_back, corrected, one, api_visibility="private", **light)
        self.download.click(self.table, self.token, self.csv, api_visibility="private", **light).success(
            None, self.csv, None, js=SAVE
        )

    def begin(self, request: gr.Request) -> list[Any]:
        """A new visitor; from now on the buttons know whose they are."""
        token = self.sessions.begin(str(request.session_hash)).token
        return [token, token, token, *[gr.update(interactive=True)] * 3]

    def leave(self, request: gr.Request) -> None:
        self.sessions.leave(str(request.session_hash))

    def take(self, side: str, token: str, progress: gr.Progress = gr.Progress()) -> dict[Any, Any]:
        """Look at what has been sent."""
        session = self.sessions.get(token)
        session.examine(side, _teller(progress))
        return {self._sent(side): views.sent(session.side(side), side), **self._nothing()}

    def clear(self, side: str, token: str) -> dict[Any, Any]:
        session = self.sessions.get(token)
        session.clear(side)
        return {self._sent(side): "", **self._nothing()}

    def example(
        self, name: str, token: str, method: str, backbone: str, progress: gr.Progress = gr.Progress()
    ) -> dict[Any, Any]:
        session = self.sessions.get(token)
        session.show_example(name)
        return self._labelled(session, method, backbone, progress)

    @_in_sentences
    def run(self, token: str, method: str, backbone: str, progress: gr.Progress = gr.Progress()) -> dict[Any, Any]:
        return self._labelled(self.sessions.get(token), method, backbone, progress)

    @_in_sentences
    def browse(self, token: str, order: Order, only: str) -> tuple[str, int]:
        return self._gallery(self.sessions.get(token), order, only, 0), 0

    @_in_sentences
    def pick(
        self, token: str, order: Order, only: str, picked: int | None, number: int, event: gr.EventData
    ) -> dict[Any, Any]:
        """An image was chosen, or another page of them."""
        session, data = self.sessions.get(token), event._data or {}
        if "page" in data:
            number = int(data["page"])
        else:
            picked = int(data["index"])
        return self._one(session, order, only, picked, number)

    @_in_sentences
    def correct(
        self, token: str, order: Order, only: str, picked: int | None, number: int, label: str
    ) -> dict[Any, Any]:
        session = self.sessions.get(token)
        if picked is None:
            raise InputError("Choose an image first.")
        session.correct(picked, label)
        return self._one(session, order, only, picked, number)

    @_in_sentences
    def take_back(self, token: str, order: Order, only: str, picked: int | None, number: int) -> dict[Any, Any]:
        session = self.sessions.get(token)
        session.undo(picked)
        return self._one(session, order, only, picked, number)

    @_in_sentences
    def table(self, token: str) -> str:
        outcome = self.sessions.get(token).outcome
        if outcome is None:
            raise InputError("Nothing is labelled yet.")
        return csv_of(outcome)

    # -- what is shown -------------------------------------------------------------------------------------------------

    def _sent(self, side: str) -> gr.HTML:
        return self.support_sent if side == "support" else self.query_sent

    def _nothing(self) -> dict[Any, Any]:
        return {
            self.results: gr.update(visible=False),
            self.welcome: gr.update(visible=True),
            self.picked: None,
            self.number: 0,
        }

    def _labelled(self, session: Session, method: str, backbone: str, progress: gr.Progress) -> dict[Any, Any]:
        outcome = session.label(self.models, method, backbone, _teller(progress))
        return {
            self.support_sent: views.sent(session.support, "support"),
            self.query_sent: views.sent(session.query, "query"),
            self.results: gr.update(visible=True),
            self.welcome: gr.update(visible=False),
            self.summary: views.summary(outcome),
            self.gallery: views.gallery(outcome, session, outcome.order(), 0),
            self.changes: views.changes(outcome),
            self.layers: views.layers(outcome),
            self.only: gr.update(choices=[ALL, *outcome.class_names], value=ALL),
            self.label: gr.update(choices=list(outcome.class_names), value=None),
            self.panel: gr.update(visible=False),
            self.again: gr.update(visible=False),
            self.picked: None,
            self.number: 0,
        }

    def _gallery(self, session: Session, order: Order, only: str, page: int, picked: int | None = None) -> str:
        if session.outcome is None:
            return ""
        rows = session.outcome.order(order, None if only == ALL else only)
        return views.gallery(session.outcome, session, rows, page, picked)

    def _one(self, session: Session, order: Order, only: str, picked: int | None, number: int) -> dict[Any, Any]:
        """The chosen image with its classes, and the gallery as it is now."""
        outcome = session.outcome
        if outcome is None:
            raise InputError("Nothing is labelled yet.")
        new = {i: k for i, k in session.corrections.items() if outcome.corrected.get(i) != k}
        gone = [i for i in outcome.corrected if i not in session.corrections]
        count = len(session.corrections)
        shown: dict[Any, Any] = {
            self.gallery: self._gallery(session, order, only, number, picked),
            self.again: gr.update(
                visible=bool(new or gone),
                value=f"Label again with {count} {'correction' if count == 1 else 'corrections'}",
            ),
            self.picked: picked,
            self.number: number,
        }
        if picked is not None:
            current = session.corrections.get(picked, int(outcome.labels[picked]))
            shown[self.chosen] = views.chosen(outcome, session, picked)
            shown[self.label] = gr.update(choices=list(outcome.class_names), value=outcome.class_names[current])
            shown[self.panel] = gr.update(visible=True)
        return shown


def _teller(progress: gr.Progress) -> Callable[[str, int, int], None]:
    return lambda what, done, total: progress((done, total), desc=what, unit="images")
