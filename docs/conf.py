"""Sphinx: how the pages of this folder become HTML.

It needs nothing of Queuey but the version: what the code knows stands in the pages (``make pages``).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from queuey._version import __version__

project = "Queuey"
author = "the Queuey project"
copyright = author
release = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# Two dashes are an option, not punctuation.
smartquotes = False

html_theme = "furo"
html_title = f"Queuey {release}"
html_logo = html_favicon = "../queuey/console/files/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {
    # The colours of the console.
    "light_css_variables": {"color-brand-primary": "#0550ae", "color-brand-content": "#0550ae"},
    "dark_css_variables": {"color-brand-primary": "#79b8ff", "color-brand-content": "#79b8ff"},
}
html_copy_source = False
html_show_sphinx = False
