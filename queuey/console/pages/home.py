"""The first page."""

from __future__ import annotations

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.visits import Visit

__all__ = ["PAGES"]

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


PAGES = (ConsolePage("/console", home),)
