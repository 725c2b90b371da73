"""Which images an argument of the command line means."""

from __future__ import annotations

import os

from unem.vision.images.listing import ImageList

__all__ = ["images_of"]


def images_of(argument: str | os.PathLike[str], name: str | None = None) -> ImageList:
    """The images of a folder in any layout that :mod:`unem.vision.datasets` knows, of a split file or CSV, or of a folder without classes.

    Nothing is opened, and files that are listed but not there are met later, one by one; :func:`unem.vision.datasets.read` is stricter.

    Args:
        argument: a folder, or a ``.csv``, ``.tsv`` or ``.json`` file beside its images.
        name: of a dataset of the catalogue.
    """
    from unem.vision.datasets.layouts import find  # which builds on this package

    return find(argument, name).images()
