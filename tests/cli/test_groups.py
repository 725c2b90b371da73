"""Groups of options: a dataclass of options becomes part of a command's signature."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import unem.cli._groups as groups
import unem.cli._options as shared


@dataclass(frozen=True, kw_only=True)
class Drawing(groups.OptionGroup):
    """A scratch group."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where it goes.")]
    colour: Annotated[str, typer.Option(help="Of the line.")] = "red"
    dashed: Annotated[bool, typer.Option("--dashed", help="Not a whole line.")] = False
    label: Annotated[str | None, typer.Option("--name", "-n", help="What it says.", show_default=False)] = None


@dataclass(frozen=True, kw_only=True)
class WiderDrawing(Drawing):
    """With one more option."""

    width: Annotated[int, typer.Option(help="In pixels.")] = 2


def application(group, **changes):
    """Two commands that share a group; what they get is kept."""
    received, app = [], typer.Typer()

    @app.command("plot")
    @groups.option_group("drawing", group, **changes)
    def plot(drawing: groups.OptionGroup, quick: bool = False) -> None:
        received.append((drawing, quick))

    @app.command("paint")
    @groups.option_group("drawing", group)
    def paint(*, size: int = 3, drawing: groups.OptionGroup, context: typer.Context) -> None:
        received.append((drawing, size, context.info_name))

    return app, received


def options(app, command):
    return {max(p.opts, key=len): p for p in get_command(app).commands[command].params}


def test_a_command_gets_the_options_and_one_argument():
    app, received = application(Drawing)
    done = CliRunner().invoke(app, ["plot", "x.png", "--colour", "blue", "--quick"])
    assert done.exit_code == 0, done.output
    drawing, quick = received[0]
    assert (drawing.file, drawing.colour, drawing.dashed, drawing.label, quick) == (
        Path("x.png"),
        "blue",
        False,
        None,
        True,
    )


@pytest.mark.parametrize("command", ["plot", "paint"])
def test_a_new_option_of_the_group_is_one_of_every_command(command):
    """One field more, in one place."""
    app, _ = application(Drawing)
    assert "--width" not in options(app, command)
    app, received = application(WiderDrawing)
    assert options(app, command)["--width"].help == "In pixels."
    assert "--width" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert CliRunner().invoke(app, [command, "x.png", "--width", "7"]).exit_code == 0
    assert received[0][0].width == 7


def test_a_new_option_of_the_protocol_is_one_of_every_command_that_draws_tasks():
    """The real group, with one field more, in place of itself."""

    @dataclass(frozen=True, kw_only=True)
    class Scratch(shared.ProtocolOptions):
        noise: Annotated[float, typer.Option(help="Added to the queries.")] = 0.0

    app, received = application(Scratch)
    for command in ("plot", "paint"):
        assert CliRunner().invoke(app, [command, "--noise", "0.5", "--shots", "2"]).exit_code == 0
    assert [(r[0].noise, r[0].shots, r[0].queries) for r in received] == [(0.5, 2, 75)] * 2


def test_given_is_what_the_parser_says():
    """A default that the user writes is given, from the environment too; one that nobody writes is not."""
    app, received = application(Drawing)
    CliRunner().invoke(app, ["plot", "x.png"])
    CliRunner().invoke(app, ["plot", "x.png", "--colour", "red", "--dashed"])
    CliRunner().invoke(app, ["plot", "x.png"], env={"APP_PLOT_COLOUR": "red"}, auto_envvar_prefix="APP")
    CliRunner().invoke(app, ["paint", "x.png", "-n", "a"])
    assert [r[0].given for r in received] == [
        {"file"},
        {"file", "colour", "dashed"},
        {"file", "colour"},
        {"file", "label"},
    ]


def test_a_command_may_have_the_parser_context_too():
    app, received = application(Drawing)
    assert CliRunner().invoke(app, ["paint", "x.png"]).exit_code == 0
    assert received[0][1:] == (3, "paint")


def test_defaults_and_help_texts_of_a_command():
    app, received = application(Drawing, colour="green", label="none", helps={"dashed": "Dashes."})
    assert CliRunner().invoke(app, ["plot", "x.png"]).exit_code == 0
    assert (received[0][0].colour, received[0][0].label) == ("green", "none")
    plot, paint = options(app, "plot"), options(app, "paint")
    assert (plot["--colour"].default, paint["--colour"].default) == ("green", "red")
    assert (plot["--dashed"].help, paint["--dashed"].help) == ("Dashes.", "Not a whole line.")
    assert (plot["--name"].show_default, paint["--name"].show_default) == (True, False)


def test_places_in_the_signature():
    """Options come where the argument is; a group's own before those that it inherits."""
    app, _ = application(WiderDrawing)
    assert list(options(app, "paint")) == ["--size", "--width", "file", "--colour", "--dashed", "--name"]


def test_mistakes_are_found_when_the_command_is_made():
    def command(drawing: groups.OptionGroup) -> None: ...

    with pytest.raises(TypeError, match="command has no parameter 'picture' for Drawing"):
        groups.option_group("picture", Drawing)(command)
    with pytest.raises(TypeError, match="Drawing has no option shade"):
        groups.option_group("drawing", Drawing, shade="dark")
    with pytest.raises(TypeError, match="Drawing has no option given"):
        groups.option_group("drawing", Drawing, helps={"given": "no"})
