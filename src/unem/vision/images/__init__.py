"""Image files: what is in a folder, and their pixels."""

from unem.vision.images.decode import ImageError, open_image
from unem.vision.images.listing import ImageList
from unem.vision.images.sources import images_of

__all__ = ["ImageError", "ImageList", "images_of", "open_image"]
