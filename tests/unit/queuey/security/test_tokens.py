"""This server's own tokens, minted and verified."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuey.clock import ManualClock
from queuey.errors import InvalidToken
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.security.bearer import Bearer
from queuey.security.permissions import VERBS, Grant
from queuey.security.tokens import Tokens, new_token_key

NEW, OLD = "ab" * 32, "cd" * 32
JOE = "bid:joe@example.org"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def proven(text: str, clock: ManualClock, *keys: str, audience: str = "queuey", life: int = 3600) -> Grant:
    return Bearer([Tokens(keys or (NEW,), audience, life, clock)]).identify(text)


def part(text: str, at: int) -> dict[str, Any]:
    encoded = text.split(".")[at]
    found = json.loads(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    assert isinstance(found, dict)
    return found


def test_a_token_proves_what_was_asked_for_and_no_more(clock: ManualClock) -> None:
    tokens = Tokens([NEW], "queuey", 3600, clock)
    ends = clock.now_ticks() + 3600 * TICKS_PER_SECOND

    whole = tokens.mint(JOE, "app")
    part_of_it = tokens.mint(JOE, "app", queues=["q", "p", "q"], verbs=["read", "list"], life_seconds=60)

    assert whole.grant == Grant(JOE, ends, "app", None, frozenset(VERBS)) == proven(whole.text, clock)
    assert part_of_it.life_seconds == 60
    assert (
        proven(part_of_it.text, clock)
        == part_of_it.grant
        == Grant(JOE, ends - 3540 * TICKS_PER_SECOND, "app", frozenset({"p", "q"}), frozenset({"read", "list"}))
    )


def test_a_token_says_nothing_but_what_is_known_of_it(clock: ManualClock) -> None:
    text = Tokens([NEW], "queuey", 60, clock).mint(JOE, "app", verbs=["read"]).text
    now = (clock.now_ticks() - EPOCH_TICKS) // TICKS_PER_SECOND

    assert part(text, 1) == {
        "iss": "queuey",
        "aud": "queuey",
        "sub": JOE,
        "iat": now,
        "exp": now + 60,
        "app": "app",
        "verbs": ["read"],
    }
    header = part(text, 0)
    assert (header["alg"], header["typ"]) == ("HS256", "queuey+jwt")
    assert header["kid"] not in NEW
    assert len(header["kid"]) == 12


def test_no_token_lives_longer_than_the_settings_say(clock: ManualClock) -> None:
    minted = Tokens([NEW], "queuey", 60, clock).mint(JOE, "app", life_seconds=3600)

    assert minted.life_seconds == 60
    clock.advance(60.3)
    with pytest.raises(InvalidToken, match="expired"):
        proven(minted.text, clock)


def test_keys_change_over_without_a_break_and_one_taken_out_revokes(clock: ManualClock) -> None:
    old = Tokens([OLD], "queuey", 60, clock).mint(JOE, "app").text

    new = Tokens([NEW, OLD], "queuey", 60, clock).mint(JOE, "app").text

    assert proven(old, clock, NEW, OLD).principal == proven(new, clock, NEW, OLD).principal == JOE
    assert proven(new, clock, NEW).principal == JOE
    for text, keys in ((old, [NEW]), (new, [OLD])):
        with pytest.raises(InvalidToken, match="not in force"):
            proven(text, clock, *keys)


def test_servers_with_other_audiences_refuse_each_others_tokens(clock: ManualClock) -> None:
    text = Tokens([NEW], "staging", 60, clock).mint(JOE, "app").text

    assert proven(text, clock, audience="staging").principal == JOE
    with pytest.raises(InvalidToken, match="audience"):
        proven(text, clock, audience="production")


def test_nothing_may_be_asked_for_and_then_nothing_is_carried(clock: ManualClock) -> None:
    grant = proven(Tokens([NEW], "queuey", 60, clock).mint(JOE, "app", queues=[], verbs=[]).text, clock)

    assert (grant.queues, grant.verbs) == (frozenset(), frozenset())


def test_keys_are_drawn_new_each_time_and_are_long_enough_to_be_secrets() -> None:
    assert len({new_token_key() for _ in range(10)}) == 10
    assert len(new_token_key()) == 64


@given(
    queues=st.none() | st.lists(st.from_regex(r"[A-Za-z0-9_.-]{1,50}", fullmatch=True), max_size=5),
    verbs=st.none() | st.lists(st.sampled_from(VERBS)),
    application=st.from_regex(r"[A-Za-z0-9_.-]{1,50}", fullmatch=True),
    life=st.none() | st.integers(1, 90_000),
)
def test_whatever_is_minted_is_verified_as_it_was_meant(
    queues: list[str] | None, verbs: list[str] | None, application: str, life: int | None
) -> None:
    clock = ManualClock()
    minted = Tokens([NEW], "queuey", 86_400, clock).mint(
        JOE, application, queues=queues, verbs=verbs, life_seconds=life
    )

    grant = proven(minted.text, clock)

    assert grant == minted.grant
    assert grant.application == application
    assert grant.queues == (None if queues is None else frozenset(queues))
    assert grant.verbs == frozenset(VERBS if verbs is None else verbs)


@given(st.data())
def test_a_token_changed_anywhere_proves_nothing(data: st.DataObject) -> None:
    clock = ManualClock()
    text = Tokens([NEW], "queuey", 60, clock).mint(JOE, "app").text
    at = data.draw(st.integers(0, len(text) - 2))  # the last character carries bits that mean nothing
    other = data.draw(st.characters(min_codepoint=33, max_codepoint=126).filter(lambda found: found != text[at]))

    with pytest.raises(InvalidToken):
        proven(text[:at] + other + text[at + 1 :], clock)


KEY, OTHER = b"k" * 32, b"o" * 32


def counts(text: str, clock: ManualClock, in_force: dict[str, list[bytes]]) -> bool:
    """Whether a token counts where applications have these keys."""
    own = Tokens([NEW], "queuey", 60, clock, lambda application: in_force.get(application, []))
    try:
        return Bearer([own]).identify(text) is not None
    except InvalidToken:
        return False


def test_a_token_ends_with_the_application_key_that_it_was_got_with(clock: ManualClock) -> None:
    text = Tokens([NEW], "queuey", 60, clock).mint(JOE, "app", by=("app", KEY)).text

    assert counts(text, clock, {"app": [OTHER, KEY]})
    assert not counts(text, clock, {"app": [OTHER]})
    assert not counts(text, clock, {"app": [], "other": [KEY]})


def test_a_token_is_not_held_against_keys_that_are_not_known(clock: ManualClock) -> None:
    """The command that inspects a token has the settings only."""
    text = Tokens([NEW], "queuey", 60, clock).mint(JOE, "app", by=("app", KEY)).text

    assert proven(text, clock).principal == JOE


def test_a_token_of_another_application_ends_with_that_ones_key(clock: ManualClock) -> None:
    text = Tokens([NEW], "queuey", 60, clock).mint("app:other", "app", by=("other", KEY)).text

    assert counts(text, clock, {"other": [KEY]})
    assert not counts(text, clock, {"app": [KEY]})


def test_a_token_does_not_help_to_guess_the_key(clock: ManualClock) -> None:
    """Its mark is keyed with the signing secret: the same key has another mark under another secret."""
    marks = {
        part(Tokens([secret], "queuey", 60, clock).mint(JOE, "app", by=("app", KEY)).text, 1)["key"]
        for secret in (NEW, OLD)
    }

    assert len(marks) == 2
    assert not any(mark in KEY.hex() for mark in marks)
