"""Signing in and out, and the first page."""

from __future__ import annotations

from queuey.console.pages.page import ConsolePage, PageAnswer, address, goes_to
from queuey.console.visits import Visit
from queuey.errors import Unauthenticated

__all__ = ["PAGES"]

MAX_NEXT = 2000
_APPLICATIONS = 100
"""Applications on a page."""


def home(visit: Visit) -> PageAnswer:
    """The applications that the visitor may see."""
    if visit.application is not None:
        return goes_to("a", visit.application)
    wanted = visit.query.get("application", "").strip()
    if wanted:
        return goes_to("a", wanted)
    listed = visit.may(limit=_APPLICATIONS, offset=visit.query.get("offset"))
    names = [] if listed is None else [entry["application"] for entry in listed.content["applications"]]
    visit.in_shell("queuey", "application", "ls")
    following = None if listed is None else listed.following
    return PageAnswer("home.html", {"applications": names, "following": following})


def sign_in(visit: Visit) -> PageAnswer:
    """The form for a key or a token."""
    return PageAnswer("sign_in.html", {"next": _local(visit.query.get("next", "")), "error": None})


def take_in(visit: Visit) -> PageAnswer:
    """Begin a session with what the form brings."""
    wanted = _local(visit.form.get("next", ""))
    try:
        session = visit.sessions.begin(visit.form.get("credential", ""))
    except Unauthenticated as error:
        return PageAnswer("sign_in.html", {"next": wanted, "error": error}, status=error.status)
    return PageAnswer(status=303, location=wanted, session=session)


def sign_out(visit: Visit) -> PageAnswer:
    """End the session in this browser."""
    visit.check_form()
    return PageAnswer(status=303, location=address("sign-in"), session=visit.sessions.anonymous())


def _local(wanted: str) -> str:
    """Where to go after signing in: a page of the console, or its first."""
    is_page = wanted == "/console" or wanted.startswith(("/console/", "/console?"))
    fits = len(wanted) <= MAX_NEXT and wanted.isascii() and wanted.isprintable() and "\\" not in wanted
    return wanted if is_page and fits else "/console"


PAGES = (
    ConsolePage("/console", home),
    ConsolePage("/console/sign-in", sign_in),
    ConsolePage("/console/sign-in", take_in, "POST"),
    ConsolePage("/console/sign-out", sign_out, "POST"),
)
