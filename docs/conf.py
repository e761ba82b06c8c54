"""Sphinx: how the pages of this folder become HTML."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from queuey._version import __version__

project = "Queuey"
author = "the Queuey project"
copyright = author
release = __version__

extensions = ["myst_parser", "sphinx_design", "reference"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# Two dashes are an option, not punctuation.
smartquotes = False

html_theme = "furo"
html_title = f"Queuey {release}"
html_copy_source = False
html_show_sphinx = False
