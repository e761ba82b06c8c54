"""Faults of the network by hand: a proxy before one node, told line by line what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import click

from tests.support.services.proxy import BOTH, Proxy, Way

VERBS: dict[str, Callable[[Proxy, float, Sequence[Way]], None]] = {
    "delay": Proxy.delay,
    "throttle": Proxy.throttle,
    "lose": Proxy.lose,
    "drop": lambda proxy, _, ways: proxy.drop(ways),
    "cut": lambda proxy, _, ways: proxy.cut(),
    "heal": lambda proxy, _, ways: proxy.heal(),
}
WITH_A_NUMBER = ("delay", "throttle", "lose")


class Unclear(ValueError):
    """A line that says nothing a proxy could do."""


def obey(proxy: Proxy, line: str) -> None:
    """Do what a line says: ``delay 0.2 back``, ``drop there``, ``heal``.

    :raises Unclear: with what was expected.
    """
    verb, *words = line.split()
    if verb not in VERBS:
        raise Unclear(f"{verb}? One of: {', '.join(VERBS)}")
    number = 0.0
    if verb in WITH_A_NUMBER:
        number = _number(verb, words.pop(0) if words else "")
    VERBS[verb](proxy, number, _ways(words))


def _number(verb: str, word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = -1
    if not 0 <= number < float("inf") or (number == 0 and verb == "throttle"):
        raise Unclear(f"{verb} takes a number first, for instance: {verb} 0.5")
    return number


def _ways(words: Sequence[str]) -> Sequence[Way]:
    if not words:
        return BOTH
    try:
        return [Way(word) for word in words]
    except ValueError as unknown:
        raise Unclear("the ways are: there (requests), back (answers), or neither word for both") from unknown


def talk(proxy: Proxy, lines: Iterable[str]) -> None:
    """Obey line after line until they end."""
    for line in lines:
        if not line.strip():
            continue
        try:
            obey(proxy, line)
        except Unclear as unclear:
            click.echo(str(unclear), err=True)
        else:
            click.echo("done", err=True)
