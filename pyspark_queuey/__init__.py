"""Spark looks for modules of this prefix: where this package is installed, ``format("queuey")`` is known."""

from qdo.pipeline.source import QueueySource as DefaultSource

__all__ = ["DefaultSource"]
