"""What the environment says to all clients: the authorities that they trust, and the proxy that they go through."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from queuey.errors import ConfigurationError

__all__ = ["TLS_HINT", "proxy_for", "trusted_context"]

TLS_HINT = "the variable REQUESTS_CA_BUNDLE names the file of an authority of your own"
"""What most often helps where TLS fails."""


def trusted_context(root: str) -> ssl.SSLContext:
    """What a client of this address needs to trust the authorities that it trusts.

    :raises ConfigurationError: the authorities that the environment names cannot be read.
    :raises ssl.SSLError: they are none.
    """
    named = _of_environment(root)["verify"]
    place = named if isinstance(named, str) else requests.utils.DEFAULT_CA_BUNDLE_PATH
    is_folder = Path(place).is_dir()
    try:
        return ssl.create_default_context(cafile=None if is_folder else place, capath=place if is_folder else None)
    except ssl.SSLError:
        raise
    except OSError as error:
        said = f"the authorities that the environment names cannot be read: {error}: {place}"
        raise ConfigurationError(said) from error


def proxy_for(root: str) -> str | None:
    """The proxy through which a client reaches this address, as the environment writes it: perhaps with a password."""
    proxy: str | None = requests.utils.select_proxy(root, _of_environment(root)["proxies"])
    return proxy


def _of_environment(root: str) -> Mapping[str, Any]:
    """The settings with which requests would ask this address."""
    return requests.Session().merge_environment_settings(root, {}, None, None, None)
