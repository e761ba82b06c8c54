"""Fields that decide rights or remove data: understood in full, or refused.

A missing field has a default, and the default of a right is often the widest one. So nothing that a caller sends to
make or change a queue or a token is ignored: decision 018.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from queuey.api.params import Problems, quoted
from queuey.errors import InvalidParameter
from queuey.http.exchange import Call

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def check_form(call: Call, pairs: Sequence[tuple[str, str]]) -> None:
    """Refuse a body in which no field was found.

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
    """Note each field that stands in the query, where it has no effect.

    :param kind: how the field is to be sent.
    """
    for name in call.query:
        if name in fields:
            problems.add(name, f"in the query string, where it has no effect: send it as a {kind}")


def check_nothing(call: Call, what: str) -> None:
    """Refuse parameters and a body where everything of a kind is removed.

    A caller that sends them means to remove only a part.

    :raises InvalidParameter: there are some.
    """
    if call.query_string or call.body:
        field = "query" if call.query_string else "body"
        raise InvalidParameter(problems={field: f"takes none: {what}"})


def _shown(name: str) -> str:
    """A field's name as a refusal shows it."""
    return name if len(name) <= 40 else quoted(name)[1:-1]
