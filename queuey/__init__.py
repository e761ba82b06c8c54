"""A partitioned, durable, time-ordered log store over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuey._version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["__version__", "main"]


def main(global_config: Mapping[str, str], **settings: str) -> Any:
    """The WSGI application, for ini files: ``paste.app_factory`` names it.

    Pyramid is imported here and not above, so that the leaves of this package stay cheap to import.
    """
    from queuey.server.wsgi import make_wsgi_app

    return make_wsgi_app(global_config, **settings)
