"""The command ``app``: the web page."""

from __future__ import annotations

from typing import Annotated

import typer

from unem._extras import require
from unem.cli._options import Device, check_device
from unem.cli._output import out
from unem.cli.app import SERVE, command

__all__: list[str] = []


@command(
    "app",
    panel=SERVE,
    epilog="Example:  unem app\n\n"
    "With CLIP to choose as well:  unem app --backbone auto --backbone openai/clip-vit-base-patch32",
)
def app_command(
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free port.", min=0, max=65535)] = 7860,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on: this computer only, or, with 0.0.0.0 and --allow-host, all who can reach it."
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address by which other computers know this one; repeatable. The page answers to no other.",
            show_default=False,
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option(help="A backbone to offer; repeatable.  [default: auto]", show_default=False),
    ] = None,
    max_upload_mb: Annotated[
        int, typer.Option(help="Largest upload in megabytes, of the examples and of the images to label.", min=1)
    ] = 200,
    max_images: Annotated[
        int, typer.Option(help="Most images in an upload, of the examples and of the images to label.", min=2)
    ] = 2000,
    max_megapixels: Annotated[
        float,
        typer.Option(
            help="Most pixels of one image as it is decoded, in millions (178 at most); large JPEGs become smaller.",
            min=0.001,
        ),
    ] = 50,
    device: Device = "cpu",
) -> None:
    """Serve a web page: drop images, see them labelled, correct some, label again.

    Images are kept in memory while the page is open, and nowhere else.
    """
    for package in ("starlette", "uvicorn"):
        require(package, "app", "the web page")
    from unem.web.limits import Limits
    from unem.web.server import serve

    serve(
        host=host,
        port=port,
        allow_host=tuple(allow_host or ()),
        backbones=tuple(backbone or ["auto"]),
        device=check_device(device),
        limits=Limits.of(max_upload_mb, max_images, max_megapixels),
        ready=lambda address: _print_address(address, host),
    )


def _print_address(address: str, host: str) -> None:
    from unem.web.guard import LOOPBACK

    out.print(f"the page is at [bold]{address}[/]  (Ctrl-C ends it)", highlight=False, soft_wrap=True)
    if host not in LOOPBACK:
        out.print("[yellow]note:[/] everybody who can reach this computer can see it; there is no password")
