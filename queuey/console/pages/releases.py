"""Releasing messages that a receiver holds which is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuey.console.pages.page import ConsolePage, PageAnswer, goes_to
from queuey.console.visits import Visit
from queuey.errors import InvalidParameter, StaleReceipt

__all__ = ["PAGES"]

MOST = 500
"""Messages that are released together: as many as one request settles."""
LOOKED_AT = 2 * MOST
"""Messages of a group among which those of a receiver are looked for."""


def preview(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Which messages would be released; none is."""
    wanted = visit.query.get("receiver", "")
    found, is_whole = _leased_by(visit, [application, queue, "leases", group], wanted)
    visit.in_shell_of(application, "queuey", "lease", "info", queue, group, "--leased")
    values = {"application": application, "queue": queue, "group": group, "receiver": wanted, "found": found}
    return PageAnswer("release.html", {**values, "is_whole": is_whole, "looked_at": LOOKED_AT})


def release(visit: Visit, application: str, queue: str, group: str) -> PageAnswer:
    """Release the messages that the receiver of the form holds.

    :raises StaleReceipt: all of their leases have ended since they were looked up.
    """
    names = [application, queue, "leases", group]
    found, _ = _leased_by(visit, names, visit.form.get("receiver", ""))
    if not found:
        raise InvalidParameter(problems={"receiver": "holds no message of this group now; nothing was changed"})
    given = [{"receipt": one["receipt"], "delay": 0, "count": "count" in visit.form} for one in found]
    settled = visit.change("POST", names, document={"release": given}).content["settled"]
    done, left = settled["released"], len(settled["stale"])
    if not done:
        raise StaleReceipt("The leases of this receiver had ended already: no message was released.")
    if left:
        return goes_to("a", application, queue, "l", group, told="released-some", done=done, left=left)
    return goes_to("a", application, queue, "l", group, told="released", done=done)


def _leased_by(visit: Visit, names: Sequence[str], receiver: str) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """Messages that a receiver holds, as far as one request releases them, and whether it surely holds no others."""
    answer = visit.ask(*names, leased="true", limit=LOOKED_AT)
    found = [one for one in answer.content["leases"] if (one["receiver"] or "") == receiver and "receipt" in one]
    return found[:MOST], len(found) <= MOST and answer.following is None


_GROUP = "/console/a/{application}/{queue}/l/{group}/release"
PAGES = (
    ConsolePage(_GROUP, preview),
    ConsolePage(_GROUP, release, "POST"),
)
