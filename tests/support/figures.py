"""Figures of a guarantee, printed when the run is over."""

from __future__ import annotations

from collections.abc import Callable

Figures = Callable[..., None]
"""Called with a guarantee and its figures; the line is printed when the run is over, also if the test fails."""
