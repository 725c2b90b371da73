"""A user's own law with a learned method, in a module outside the library."""

from __future__ import annotations

import importlib
import sys

OWN_METHOD = '''
"""A law of one's own."""

from dataclasses import dataclass
from typing import ClassVar

from unem import Gaussian, register_method
from unem.learning.recipes import SCHEDULE
from unem.methods import LearnedMethod


@dataclass(frozen=True)
class OwnLaw(Gaussian):
    """The Gaussian law, under another name."""

    name: ClassVar[str] = "own"


@register_method("own-unem", reference="nowhere", law=OwnLaw(), recipe=SCHEDULE)
@dataclass(frozen=True)
class OwnUNEM(LearnedMethod):
    """UNEM with a law of one's own."""
'''


def import_own(folder, monkeypatch, source=OWN_METHOD, name="own_unem_module"):
    """The module, imported from a folder; what it registers is forgotten after the test."""
    for place in ("unem.methods._registry._registry", "unem.core.laws.base.LAWS"):
        module, _, attribute = place.rpartition(".")
        monkeypatch.setattr(place, dict(getattr(sys.modules[module], attribute)))
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(sys.modules, name, None)  # so that it is forgotten too
    del sys.modules[name]
    return importlib.import_module(name)
