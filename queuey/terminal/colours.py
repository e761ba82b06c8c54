"""Whether output has colours."""

from __future__ import annotations

import os

__all__ = ["no_colour"]


def no_colour() -> bool:
    """Whether the person wants none: the variable NO_COLOR has a value (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))
