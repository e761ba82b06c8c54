"""Requests to a server that checks no signature: only programs of this machine may send them, and pages of browsers are none.

A page of any site can let a browser send a form to this machine, and load a link from it as a picture. With a name that it
lets point to this machine it can read the answers, too. The browser says so in headers that no page can change.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from queuey.http.addresses import is_from_here
from queuey.http.cors import allowed_origin
from queuey.http.exchange import Call
from queuey.settings import Settings
from queuey.settings.issuers import is_this_machine
from queuey.sqs.errors import access_denied, shown

__all__ = ["check_sender"]

_TYPED = "none"
"""``Sec-Fetch-Site`` of an address that a person typed."""


def check_sender(call: Call, settings: Settings) -> None:
    """Refuse what does not come from a program of this machine.

    :raises SqsError: a page sent it that ``[server] cors_origins`` does not name; or it comes from another machine, or
        is for the name of one.
    """
    origin = call.headers.get("origin")
    if origin is None:
        is_of_page = call.headers.get("sec-fetch-site", _TYPED) != _TYPED
    else:
        is_of_page = allowed_origin(origin, settings.server.cors_origins) is None
    if is_of_page:
        raise access_denied(
            "A page in a browser sent this, and this server checks no signature ([sqs] auth = open): name the page's "
            "origin in [server] cors_origins if it may."
        )
    if settings.sqs.open_to_network:
        return
    if not is_from_here(call):  # by a proxy, or a WSGI server that listens where it likes
        raise access_denied(
            "Another machine sent this, or a proxy for it, and this server checks no signature ([sqs] auth = open): set "
            "[sqs] open_to_network if each machine that reaches it may do everything."
        )
    host = call.headers.get("host", "localhost")
    name, own = _name(host), settings.sqs.host.rpartition("://")[2]
    if not (is_this_machine(name) or (own and name == _name(own))):
        raise access_denied(
            f"This was sent to {shown(host)}, which is no name of this machine, and this server checks no signature "
            "([sqs] auth = open): send it to localhost, or set [sqs] host to that name."
        )


def _name(host: str) -> str:
    """The name or the address in a Host header; ``?``, which none has, if it is broken or empty.

    >>> _name("localhost:5000"), _name("[::1]:5000"), _name("["), _name("")
    ('localhost', '::1', '?', '?')
    """
    try:
        return urlsplit(f"//{host}").hostname or "?"
    except ValueError:
        return "?"
