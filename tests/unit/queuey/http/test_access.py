"""Callers that wait are identified again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from queuey.clock import ManualClock
from queuey.errors import ApplicationNotFound, InvalidToken
from queuey.future import run
from queuey.http.access import identify, identify_again
from queuey.http.exchange import Call
from queuey.security.app_keys import digest_of
from queuey.service import Service
from queuey.settings import load_settings
from tests.support.floods import flood

KEY, OTHER = "f25bfb8fe200475c8a0532a9cbe7651e", "0ddba11f25bfb8fe200475c8a0532a9c"
PEER = "192.0.2.7"


@pytest.fixture
def service() -> Iterator[Service]:
    """It trusts its own tokens, and knows one application, which has two keys."""
    given: dict[str, dict[str, Any]] = {"storage": {"backend": "memory"}, "tokens": {"keys": ("5ec4e7" * 8,)}}
    service = Service.open(load_settings(None, {}, given), clock=ManualClock())
    service.keys.configure({"shop": (KEY, OTHER)})
    run(service.start())
    yield service
    service.close()


def waiting(service: Service, header: str = "") -> Call:
    call = Call("GET", "/v1/shop/jobs", "", {"authorization": header} if header else {})
    call.application, call.peer = "shop", PEER
    call.known_as(identify(service, header, call))
    return call


def token(service: Service) -> str:
    """For a user, got with one of the keys."""
    assert service.trust.tokens is not None
    return service.trust.tokens.mint("bid:joe@example.org", "shop", by=("shop", digest_of(KEY))).text


@pytest.mark.parametrize("header", ["", f"Application {KEY}"])
def test_nobody_waits_at_an_application_that_is_gone(service: Service, header: str) -> None:
    call = waiting(service, header)
    run(identify_again(service, call))

    service.keys.configure({"other": (KEY,)})

    with pytest.raises(ApplicationNotFound):
        run(identify_again(service, call))


def test_a_flood_of_bad_tokens_puts_off_no_end(service: Service) -> None:
    call = waiting(service, f"Bearer {token(service)}")
    flood(service, PEER)

    service.keys.configure({"shop": (OTHER,)})

    with pytest.raises(InvalidToken):
        run(identify_again(service, call))


def test_a_flood_of_bad_tokens_ends_no_wait(service: Service) -> None:
    call = waiting(service, f"Bearer {token(service)}")
    flood(service, PEER)

    service.trust.forget()  # as where an issuer has other keys

    run(identify_again(service, call))
    assert call.identity.principals == {"bid:joe@example.org"}
