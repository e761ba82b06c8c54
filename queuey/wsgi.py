"""The WSGI application for servers that take no arguments: ``gunicorn -k gthread --threads 8 queuey.wsgi:app``.

Configured by the ini file that ``QUEUEY_CONFIG`` names and by ``QUEUEY_*`` variables. One process
only on the embedded store.
"""

from __future__ import annotations

from queuey import main

app = main({})
