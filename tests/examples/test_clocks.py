"""Clocks, as the README of the example says: one queue, streamed by Spark and processed by workers, and the totals agree."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from examples.clocks.changes import changes, events, zones
from tests.support.servers import eventually
from tests.support.services.ports import free_ports
from tests.support.shell import ROOT, Shell, answers, commands_of

KEY = "c" * 32


@pytest.mark.long
def test_all_roads_bring_the_same_total(tmp_path: Path) -> None:
    key, serve, publish, work, stream, totals = commands_of(ROOT / "examples" / "clocks" / "README.md")
    assert key.startswith("export QUEUEY_KEY=")
    (port,) = free_ports(1, ["127.0.0.1"])
    url = f"http://127.0.0.1:{port}"
    variables = {"QUEUEY_KEY": KEY, "QUEUEY_PORT": str(port), "QUEUEY_URL": url, "QDO_STATE": str(tmp_path / "state")}
    shell = Shell(tmp_path, HOME="/root", **variables)
    try:
        shell.type(serve)
        eventually(lambda: answers(f"{url}/__lbheartbeat__"), seconds=90)
        shell.type(work, publish, stream)
        eventually(lambda: " UTC: the clocks of " in shell.said, seconds=300)
        shell.type("wait %2 %3", totals)
        eventually(lambda: '"zones"' in shell.said, seconds=120)
    finally:
        said = shell.said
        shell.close()

    counts = json.loads(said[said.index('{"published"') :].splitlines()[0])
    expected = sum(1 for _ in events())
    assert counts == {
        "published": expected,
        "archived": expected,
        "in_hours": expected,
        "seen_by_workers": expected,
        "zones": sum(1 for zone in zones() if any(True for _ in changes(zone))),
    }


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Tokyo"])
def test_changes_are_those_that_the_standard_library_knows(zone: str) -> None:
    for moment, offset, summer, letters in changes(zone):
        if moment > -2_000_000_000:
            told = datetime.fromtimestamp(moment, UTC).astimezone(ZoneInfo(zone))
            assert (told.utcoffset() or told.dst()) is not None
            assert told.tzname() == letters
            assert round(told.utcoffset().total_seconds()) == offset  # type: ignore[union-attr]
            assert bool(told.dst()) == summer
