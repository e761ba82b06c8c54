"""Spark looks for modules of this prefix: where this package is installed, ``format("queuey")`` is known."""
