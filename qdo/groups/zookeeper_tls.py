"""How a group in ZooKeeper keeps others out: authentication, and TLS that trusts one authority."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import make_digest_acl

from queuey.errors import ConfigurationError

__all__ = ["TrustingHandler", "security", "tls_trouble", "trusting_context"]

TLS_SECONDS = 5.0
"""For one server to shake hands."""


def security(
    auth: str | None = None, ca: str | None = None, cert: str | None = None, key: str | None = None
) -> dict[str, Any]:
    """Arguments of :class:`~qdo.groups.zookeeper.ZooKeeperCoordinator` that keep others out.

    :param auth: ``USER:PASSWORD``. Only this user can read and change the nodes that are made.
    :param ca: file of the authority that signed ZooKeeper's certificate; the group then speaks TLS. The certificate
        must name the host as it is spelled here. Else any other certificate of the authority would do for a server in
        between.
    :param cert: file of a certificate to show to ZooKeeper, with its ``key``.
    :raises ConfigurationError: one of them cannot be used.
    """
    found: dict[str, Any] = {}
    if auth is not None:
        user, colon, password = auth.partition(":")
        if not (user and colon and password):
            raise ConfigurationError("the authentication for ZooKeeper is not USER:PASSWORD")
        found |= {"auth_data": [("digest", auth)], "default_acl": [make_digest_acl(user, password, all=True)]}
    for what, file in (("ca", ca), ("cert", cert), ("key", key)):
        if file is not None and not Path(file).is_file():
            raise ConfigurationError(f"the {what} for ZooKeeper, {file}, is no file")
    if (cert is None) != (key is None):
        raise ConfigurationError("a certificate for ZooKeeper needs its key, and a key its certificate")
    if ca is not None:
        found |= {
            "use_ssl": True,
            "verify_certs": True,
            "check_hostname": True,
            "ca": ca,
            "certfile": cert,
            "keyfile": key,
        }
    elif cert is not None:
        raise ConfigurationError("a certificate is shown by TLS alone: name the ca of ZooKeeper as well")
    return found


def trusting_context(ca: str, cert: str | None, key: str | None) -> ssl.SSLContext:
    """Trusts this authority, and none of the system's."""
    context = ssl.create_default_context(cafile=ca)
    if cert:
        context.load_cert_chain(cert, key)
    return context


class TrustingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Connects with a context of ours. Kazoo's own context also trusts the authorities of the system."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> ssl.SSLSocket:
        """A socket to one of ZooKeeper's servers, after the handshake."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(plain, server_hostname=hostname)
        except OSError:
            plain.close()
            raise


def tls_trouble(client: KazooClient, *, listens: bool = False) -> str | None:
    """Why TLS fails at the first server that can be reached. Kazoo only tries again and again, and does not say why.

    :param listens: wait after the handshake until the server says something. Only then does a server tell that it
        refuses the client's certificate.
    :returns: None if TLS does not fail, or if no server can be reached.
    """
    context = trusting_context(client.ca, client.certfile, client.keyfile)
    for host, port in client.hosts:
        try:
            with (
                socket.create_connection((host, port), TLS_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=host) as connection,
            ):
                if listens:
                    connection.recv(1)
                return None
        except TimeoutError:
            return None
        except ssl.SSLError as error:
            return str(error)
        except OSError:
            continue
    return None
