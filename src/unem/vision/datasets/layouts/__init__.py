"""The layouts that image datasets come in, read as an :class:`~unem.vision.images.ImageList`; no image is opened.

One module per kind of layout (``coop``, ``fgvc``, ``tables``, ``folders``), what they share in ``found``, and
``reading``, which looks for them in order.
"""

from unem.vision.datasets.layouts.found import LAYOUTS, SPLITS, Found, inside, some
from unem.vision.datasets.layouts.reading import find, hub_form, images_of, read

__all__ = ["LAYOUTS", "SPLITS", "Found", "find", "hub_form", "images_of", "inside", "read", "some"]
