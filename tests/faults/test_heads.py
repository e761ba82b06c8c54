"""G19: no request is smuggled past a proxy: where one begins and ends, Queuey, llhttp and nginx agree."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.figures import Figures
from tests.support.heads import backend, by_llhttp, by_nginx, differences, queuey, stream
from tests.support.services.nginx import nginx

HALF_CLOSE = "proxy_ignore_client_abort on;"
"""The tests say by a half-close that nothing more comes, and still want the answers."""
STREAMS = 1000

PLANTED: dict[str, Callable[[bytes], bytes]] = {
    "a blank before the colon": lambda raw: re.sub(rb"[ \t]+:", b":", raw),
    "chunks are not noticed": lambda raw: raw.replace(b"Transfer-Encoding", b"X-Other"),
    "a length that begins well": lambda raw: re.sub(rb"(?i)(content-length: *\d+)[^\r]*", rb"\1", raw),
    "the path is not the same": lambda raw: raw.replace(b"//b", b"/b"),
}


def test_queuey_sees_no_other_requests_than_llhttp_and_nginx(
    tmp_path: Path, chance: random.Random, rounds: Callable[[int], range], figures: Figures
) -> None:
    seen = taken = 0
    found = []
    with (
        backend() as behind,
        nginx(tmp_path / "nginx", behind.port, settings=HALF_CLOSE) as port,
        queuey() as reader,
    ):
        for _ in rounds(STREAMS):
            raw = stream(chance)
            ours, theirs = reader.read(raw), by_nginx(port, behind, raw)
            found += [
                (who, differs, raw)
                for who, differs in (
                    ("llhttp", differences(ours, by_llhttp(raw))),
                    ("nginx", differences(ours, theirs)),
                    ("behind nginx", differences(reader.read(behind.raw), theirs)),
                )
                if differs
            ]
            seen += 1
            taken += len(ours.requests)

    figures("G19", streams=seen, requests=taken, read_otherwise=len(found))
    assert found[:1] == []
    assert taken > seen / 2


@pytest.mark.parametrize("fault", PLANTED)
def test_a_reading_of_our_own_is_noticed(tmp_path: Path, chance: random.Random, fault: str) -> None:
    with (
        backend() as behind,
        nginx(tmp_path / "nginx", behind.port, settings=HALF_CLOSE) as port,
        queuey(PLANTED[fault]) as reader,
    ):

        def is_noticed() -> bool:
            raw = stream(chance)
            try:
                ours = reader.read(raw)
            except AssertionError:
                return False
            return bool(differences(ours, by_llhttp(raw)) or differences(ours, by_nginx(port, behind, raw)))

        assert any(is_noticed() for _ in range(10 * STREAMS))
