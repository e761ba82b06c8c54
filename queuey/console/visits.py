"""A visit: one request of a browser, and the calls of v1 that serve it."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import isfinite, nan
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import orjson

from queuey.console.providers import Providers
from queuey.console.sessions import Session, Sessions
from queuey.console.shown import moment_of
from queuey.errors import Forbidden, InvalidParameter, LeaseGroupNotFound, NotFound, QueueyError, TaskNotFound
from queuey.future import run
from queuey.http.addresses import address_of
from queuey.http.exchange import JSON, Call, joined
from queuey.http.inside import Inside
from queuey.security.claims import unix_now
from queuey.security.principals import application_of, operator_among
from queuey.service import Service

__all__ = ["FORM", "V1Answer", "Visit"]

log = logging.getLogger(__name__)

FORM = "application/x-www-form-urlencoded"
MAX_FIELDS = 100


class V1Answer(NamedTuple):
    """What v1 answered."""

    content: Any
    headers: Mapping[str, str]

    @property
    def following(self) -> str | None:
        """The query of the next page of a list; None if there is none."""
        link = self.headers.get("link", "")
        return link[link.index("?") + 1 : link.index(">")] if "?" in link else None


class Visit:
    """What a page needs: the person that asks, the form that was sent, and v1.

    It runs in a thread, and blocks there.
    """

    def __init__(self, service: Service, sessions: Sessions, providers: Providers, inside: Inside, call: Call) -> None:
        self.service = service
        self.sessions = sessions
        self.providers = providers
        self.call = call
        self._inside = inside
        found = sessions.of(call.headers)
        self.is_new = found is None
        """The browser has no session yet."""
        self.session: Session = sessions.anonymous() if found is None else found
        self.asked: list[str] = []
        """The addresses of v1 that the page was made of."""
        self.commands: list[str] = []
        """Command lines that do or show the same."""

    # The person that asks

    @property
    def principals(self) -> Sequence[str]:
        """What the session proves; nothing if nobody is signed in."""
        return sorted(self.call.identity.principals)

    @property
    def application(self) -> str | None:
        """The application that is signed in; None for anybody else."""
        return next((name for one in self.principals if (name := application_of(one)) is not None), None)

    @property
    def is_operator(self) -> bool:
        return operator_among(self.call.identity.principals) is not None

    def owns(self, application: str) -> bool:
        """Whether it is the visitor's own application, or an operator's visit: others need no way to what v1 refuses them."""
        return self.is_operator or application == self.application

    def in_shell(self, *words: str) -> None:
        """Name a command that does or shows the same. Empty words are left out, and all others are quoted."""
        self.commands.append(shlex.join([word for word in words if word]))

    def in_shell_of(self, application: str, *words: str) -> None:
        """As :meth:`in_shell`, of a command about one application.

        The shell of that application knows its name. That of an operator or a user would ask for another one.
        """
        named = () if application == self.application else ("--application", application)
        self.in_shell(*words, *named)

    # What was sent

    @property
    def query(self) -> Mapping[str, str]:
        return self.call.query

    @property
    def csrf(self) -> str:
        """What each form of this session brings."""
        return self.sessions.csrf(self.session)

    @cached_property
    def form(self) -> Mapping[str, str]:
        """The fields of the form. Empty ones are left out, and it was sent from a page of this session.

        :raises InvalidParameter: it is no form.
        :raises Forbidden: it comes from elsewhere.
        """
        if self.call.media_type != FORM:
            raise InvalidParameter(problems={"Content-Type": f"expected {FORM}"})
        try:
            pairs = parse_qsl(self.call.body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError as error:
            raise InvalidParameter(problems={"body": f"is not a form of at most {MAX_FIELDS} fields"}) from error
        fields = dict(pairs)
        self.sessions.check_csrf(self.session, fields.pop("csrf", ""))
        return {name: text for name, text in fields.items() if text}

    def moment(self, text: str | None) -> str | None:
        """A time or an id from a form, as v1 takes it; None if there is none."""
        return moment_of(text, unix_now(self.service.clock)) if text and text.strip() else None

    def number(self, name: str, meaning: str) -> float:
        """A number of the form.

        :param meaning: what it has to be.
        :raises InvalidParameter: it is none, or one that JSON cannot say: v1 would take that for no number at all.
        """
        try:
            number = float(self.form[name])
        except ValueError:
            number = nan
        if not isfinite(number):
            raise InvalidParameter(problems={name: f"must be {meaning}"})
        return number

    def check_form(self) -> None:
        """:raises QueueyError: as :attr:`form`."""
        _ = self.form

    # v1

    def ask(self, *names: str, **query: object) -> V1Answer:
        """Read.

        :param names: the parts of the path below ``/v1``.
        :param query: None leaves a parameter out.
        :raises QueueyError: v1 refuses.
        """
        given = {name: str(value) for name, value in query.items() if value is not None}
        address = _address(names, given)
        self.asked.append("/".join(["/v1", *map(quote, names)]) + (f"?{urlencode(given)}" if given else ""))
        return self._send("GET", address, b"", {})

    def may(self, *names: str, **query: object) -> V1Answer | None:
        """As :meth:`ask`; None if it is not for the visitor, or there is no such group or task: the page leaves it out."""
        try:
            return self.ask(*names, **query)
        except (Forbidden, LeaseGroupNotFound, TaskNotFound):
            self.asked.pop()
            return None

    def preview(self, method: str, names: Sequence[str], document: Mapping[str, Any]) -> V1Answer:
        """Ask what a change would do.

        :raises QueueyError: v1 refuses.
        """
        body = orjson.dumps({**document, "preview": True})
        return self._send(method, _address(names, {}), body, {"content-type": JSON})

    def change(
        self,
        method: str,
        names: Sequence[str],
        *,
        document: Any = None,
        form: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> V1Answer:
        """Change something, and log whose change it was.

        :param document: the body as JSON, or
        :param form: as fields, or
        :param body: as it is, with its type among the headers.
        :raises QueueyError: v1 refuses.
        """
        media_type = ""
        if document is not None:
            body, media_type = orjson.dumps(document), JSON
        elif form is not None:
            body, media_type = urlencode(form).encode(), FORM
        given = {"content-length": str(len(body))} if body else {}
        if media_type:
            given["content-type"] = media_type
        path, outcome = "/".join(["/v1", *map(quote, names)]), "failed"
        try:
            answer = self._send(method, _address(names, {}), body, given | dict(headers or {}))
            outcome = "done"
        except QueueyError as error:
            outcome = error.code
            raise
        finally:
            self.audit(method, path, outcome)
        return answer

    def audit(self, action: str, path: str, outcome: str, principals: Sequence[str] | None = None) -> None:
        """Log whose action it was, and how it ended.

        :param principals: in place of those of the session.
        """
        log.info(
            "audit: %s %s: %s",
            action,
            path,
            outcome,
            extra={
                "audit": action,
                "path": path,
                "outcome": outcome,
                "principals": self.principals if principals is None else principals,
                "address": address_of(self.call, self.service.settings.server.trusted_proxies),
                "request_id": self.call.request_id,
            },
        )

    def _send(self, method: str, address: str, body: bytes, headers: Mapping[str, str]) -> V1Answer:
        call, operation = self._inside.open(method, address, headers)
        answer = run(self._inside.serve(self.call, call, operation, body))
        given, stream = answer.body, answer.stream
        if stream is not None:
            pieces = []
            while (piece := run(stream.more())) is not None:
                pieces.append(joined(piece))
            given = b"".join(pieces)
        return V1Answer(orjson.loads(given) if given else None, dict(answer.headers))


def _address(names: Sequence[str], query: Mapping[str, str]) -> str:
    """:raises NotFound: a name that no path can have."""
    if any(not name or "/" in name or "?" in name for name in names):
        raise NotFound
    path = "/".join(["/v1", *names])
    return f"{path}?{urlencode(query)}" if query else path
