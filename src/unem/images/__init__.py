"""Image files: what is in a folder, and their pixels."""

from unem.images.listing import ImageList

__all__ = ["ImageList"]
