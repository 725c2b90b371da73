"""Where jobs are done: on this machine, or on a Ray cluster."""

from unem.experiments.engines.local import LocalEngine

__all__ = ["LocalEngine"]
