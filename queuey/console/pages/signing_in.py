"""Signing in, with a key, with a token or at an issuer's page, and signing out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer, address
from queuey.console.providers import ATTEMPT_COOKIE, ATTEMPT_SECONDS
from queuey.console.sessions import Session, cookie_header
from queuey.console.visits import Visit
from queuey.errors import QueueyError, Unauthenticated

__all__ = ["PAGES"]

MAX_NEXT = 2000
MAX_NEXT_AT_ISSUER = 500
"""Characters of a page to go on to that a cookie keeps."""
_SIGN_IN = "/console/sign-in"


def sign_in(visit: Visit) -> PageAnswer:
    """The form for a key or a token, and the issuers."""
    return _form(visit, _local(visit.query.get("next", "")))


def take_in(visit: Visit) -> PageAnswer:
    """Begin a session with what the form brings."""
    wanted = _local(visit.form.get("next", ""))

    def begin() -> tuple[Session, str]:
        return visit.sessions.begin(visit.form.get("credential", ""), visit.call), wanted

    return _begun(visit, _SIGN_IN, begin, wanted)


def sign_out(visit: Visit) -> PageAnswer:
    """End the session in this browser."""
    visit.check_form()
    visit.audit("SIGN-OUT", "/console/sign-out", "done")
    return PageAnswer(status=303, location=address("sign-in"), session=visit.sessions.anonymous())


def go_to_issuer(visit: Visit, issuer: str) -> PageAnswer:
    """Begin a sign-in at an issuer's page, and send the browser there."""
    wanted = _local(visit.query.get("next", ""))
    if len(wanted) > MAX_NEXT_AT_ISSUER:
        wanted = "/console"
    location, attempt = visit.providers.begin(issuer, wanted)
    kept = ("set-cookie", cookie_header(ATTEMPT_COOKIE, attempt, visit.call, _SIGN_IN, ATTEMPT_SECONDS))
    return PageAnswer(status=303, location=location, headers=[kept])


def come_back(visit: Visit, issuer: str) -> PageAnswer:
    """Begin a session with what the browser brings back from an issuer."""

    def begin() -> tuple[Session, str]:
        token, wanted = visit.providers.finish(issuer, visit.call)
        return visit.sessions.with_token(token, visit.call), _local(wanted)

    answer = _begun(visit, address("sign-in", "from", issuer), begin, "/console")
    answer.headers.append(("set-cookie", cookie_header(ATTEMPT_COOKIE, "", visit.call, _SIGN_IN, 0)))
    return answer


def _begun(visit: Visit, path: str, begin: Callable[[], tuple[Session, str]], next_time: str) -> PageAnswer:
    """Begin a session, and go on to its page; or show the form again, with a sentence. Either leaves a line in the log.

    :param begin: the session, and the page that follows.
    :param next_time: the page that follows if the form is sent again.
    """
    outcome, proved = "failed", list[str]()
    try:
        session, wanted = begin()
        outcome, proved = "done", sorted(visit.sessions.identity(session, visit.call).principals)
    except Unauthenticated as error:
        outcome = error.code
        return _form(visit, next_time, error)
    except QueueyError as error:
        outcome = error.code
        raise
    finally:
        visit.audit("SIGN-IN", path, outcome, proved)
    return PageAnswer(status=303, location=wanted, session=session)


def _form(visit: Visit, wanted: str, error: QueueyError | None = None) -> PageAnswer:
    values: Mapping[str, Any] = {"next": wanted, "error": error, "issuers": visit.providers.names}
    return PageAnswer("sign_in.html", values, status=200 if error is None else error.status)


def _local(wanted: str) -> str:
    """Where to go after signing in: a page of the console, or its first."""
    is_page = wanted == "/console" or wanted.startswith(("/console/", "/console?"))
    fits = len(wanted) <= MAX_NEXT and wanted.isascii() and wanted.isprintable() and "\\" not in wanted
    return wanted if is_page and fits else "/console"


PAGES = (
    ConsolePage(_SIGN_IN, sign_in),
    ConsolePage(_SIGN_IN, take_in, "POST"),
    ConsolePage(f"{_SIGN_IN}/at/{{issuer}}", go_to_issuer),
    ConsolePage(f"{_SIGN_IN}/from/{{issuer}}", come_back),
    ConsolePage("/console/sign-out", sign_out, "POST"),
)
