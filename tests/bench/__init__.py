"""How fast Queuey is, as ratios within one run: ``python -m tests.bench``.

Speeds of a machine say little about a program; the same work done with less around it, on the same
machine in the same minute, says what the program adds. So each figure is compared with a baseline,
both are measured several times in turn, and what counts is the median of the ratios.
"""
