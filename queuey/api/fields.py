"""What decides rights, or removes data: understood whole, or refused.

A field that is left out has a default, and the default of a right is often the widest one. So nothing that
a caller sends to make or change a queue or a token is passed over: decision 018.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from queuey.api.params import Problems, quoted
from queuey.errors import InvalidParameter
from queuey.http.exchange import Call

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def check_form(call: Call, pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse a body of which nothing was understood.

    :param pairs: the fields that were found in it.
    :raises InvalidParameter: the body is no form, or a form without a field.
    """
    if call.body and not pairs:
        text = f"expected form fields ({' or '.join(FORMS)}), or no body"
        raise InvalidParameter(problems={"body": text})


def check_names(pairs: Sequence[tuple[str, str]], known: Sequence[str], problems: Problems) -> None:
    """Note each field that is unknown, or given twice."""
    seen: set[str] = set()
    for name, _ in pairs:
        if name not in known:
            problems.add(_shown(name), f"unknown: expected {', '.join(known)}")
        elif name in seen:
            problems.add(name, "given twice: expected one value")
        seen.add(name)


def check_query(call: Call, fields: Collection[str], problems: Problems, kind: str = "form field") -> None:
    """Note each field that is in the address, where it has no effect.

    :param kind: what it is to be sent as.
    """
    for name in call.query:
        if name in fields:
            problems.add(name, f"in the query string, where it has no effect: send it as a {kind}")


def check_nothing(call: Call, what: str) -> None:
    """Refuse parameters and a body where all of something is removed: they were meant to spare a part of it.

    :raises InvalidParameter: there are some.
    """
    if call.query_string or call.body:
        field = "query" if call.query_string else "body"
        raise InvalidParameter(problems={field: f"takes none: {what}"})


def _shown(name: str) -> str:
    """The name of a field as a refusal repeats it."""
    return name if len(name) <= 40 else quoted(name)[1:-1]
