"""``python -m scripts.pages`` writes what is not current, and names it."""

from __future__ import annotations

import sys

from . import ROOT, written

for path, text in written():
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
