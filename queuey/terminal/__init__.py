"""What the command lines ``queuey`` and ``qdo`` have in common: output, options, times."""
