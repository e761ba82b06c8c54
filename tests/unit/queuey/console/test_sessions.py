from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from queuey.clock import ManualClock
from queuey.console.sessions import COOKIE, SESSION_SECONDS, Session, Sessions
from queuey.errors import Forbidden, InvalidApplicationKey
from queuey.future import run
from queuey.http.exchange import Call
from queuey.security.app_keys import digest_of
from queuey.service import Service
from queuey.settings import load_settings

KEY = "a-key-of-the-application"
FORMER, LATER = "0ddba11" * 6, "5ec4e7" * 8
CALL = Call("GET", "/console", "", {})
Make = Callable[..., Sessions]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(clock: ManualClock) -> Iterator[Make]:
    """Sessions of a server with these secrets, in which ``demo`` has the key of its name."""
    with ExitStack() as stack:

        def make(*secrets: str) -> Sessions:
            given = {"QUEUEY_STORAGE_BACKEND": "memory", "QUEUEY_CONSOLE_SECRETS": "\n".join(secrets)}
            service = Service.open(load_settings(None, given, {}), clock=clock)
            stack.callback(service.close)
            run(service.keys.new("demo", KEY))
            return Sessions(service)

        yield make


def cookie(sessions: Sessions, session: Session) -> dict[str, str]:
    return {"cookie": f"other=1; {COOKIE}={sessions.seal(session)}; another=2"}


def test_a_session_proves_what_its_key_proved_until_its_time_is_over(make: Make, clock: ManualClock) -> None:
    sessions = make()
    session = sessions.of(cookie(sessions, sessions.begin(KEY, CALL)))

    assert sessions.identity(session, CALL).principals == {"app:demo"}
    clock.advance(SESSION_SECONDS)
    assert sessions.identity(session, CALL).principals == frozenset()


def test_a_session_uses_the_key_it_began_with(make: Make, clock: ManualClock) -> None:
    """Whoever removes keys that nobody uses must not end sessions of people at work."""
    sessions = make()
    session = sessions.begin(KEY, CALL)
    clock.advance(3600)

    sessions.identity(session, CALL)

    assert sessions._service.keys.last_use(digest_of(KEY)) == clock.now_ticks()


def test_a_former_secret_still_verifies_and_one_that_is_gone_does_not(make: Make) -> None:
    before, changing, after = make(FORMER), make(LATER, FORMER), make(LATER)
    session = before.begin(KEY, CALL)
    sent = cookie(before, session)

    assert changing.of(sent) == session
    assert changing.identity(session, CALL).principals == {"app:demo"}
    changing.check_csrf(session, before.csrf(session))
    assert after.of(sent) is None
    assert after.identity(session, CALL).principals == frozenset()
    with pytest.raises(Forbidden):
        after.check_csrf(session, before.csrf(session))


def test_without_secrets_two_servers_know_nothing_of_each_other(make: Make) -> None:
    one, other = make(), make()

    assert other.of(cookie(one, one.begin(KEY, CALL))) is None


def test_what_another_version_signed_is_no_session(make: Make) -> None:
    sessions = make(LATER)
    longer = sessions.seal((*sessions.begin(KEY, CALL), "more"))  # type: ignore[arg-type]

    assert sessions.of({"cookie": f"{COOKIE}={longer}"}) is None
    assert sessions.of({}) is None


def test_a_key_proves_nobody_else(make: Make) -> None:
    sessions = make(LATER)
    session = sessions.begin(KEY, CALL)

    assert sessions.identity(session._replace(principal="app:other"), CALL).principals == frozenset()
    assert sessions.identity(sessions.anonymous(), CALL).principals == frozenset()
    with pytest.raises(InvalidApplicationKey):
        sessions.begin(" ", CALL)
