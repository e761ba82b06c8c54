"""The common part of ``queuey`` and ``qdo``: output, options, times."""
