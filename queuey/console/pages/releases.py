"""Releasing messages that a receiver holds which is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.visits import Visit
from queuey.errors import InvalidParameter

__all__ = ["PAGES"]

MOST = 500
"""Messages that are released together: as many as one request settles."""


def preview(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Which messages would be released; none is."""
    wanted = visit.query.get("receiver", "")
    found = _leased_by(visit, [application, queue, "leases", group], wanted)
    visit.in_shell_of(application, "queuey", "lease", "info", queue, group, "--leased")
    values = {"application": application, "queue": queue, "group": group, "receiver": wanted, "found": found}
    return PageAnswer("release.html", values)


def release(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Release the messages that the receiver of the form holds."""
    names = [application, queue, "leases", group]
    found = _leased_by(visit, names, visit.form.get("receiver", ""))
    if not found:
        raise InvalidParameter(problems={"receiver": "holds no message of this group now; nothing was changed"})
    given = [{"receipt": one["receipt"], "delay": 0, "count": "count" in visit.form} for one in found]
    visit.change("POST", names, document={"release": given})
    return goes_to("a", application, queue, "l", group, told="released")


def _leased_by(visit: Visit, names: Sequence[str], receiver: str) -> Sequence[Mapping[str, Any]]:
    """Messages that a receiver holds, as far as one request releases them, among the first thousand of the group."""
    held = visit.ask(*names, leased="true", limit=2 * MOST).content["leases"]
    return [one for one in held if (one["receiver"] or "") == receiver and "receipt" in one][:MOST]


_GROUP = "/console/a/{application}/{queue}/l/{group}/release"
PAGES = (
    ConsolePage(_GROUP, preview),
    ConsolePage(_GROUP, release, "POST"),
)
