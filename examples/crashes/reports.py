"""Reports as crashed programs send them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from qdo import NewMessage

PRODUCTS = ("browser", "mail", "phone")
_PLACES = ("layout", "dom", "js", "gfx", "network", "storage", "audio", "plugin")
_DEEDS = ("Init", "Paint", "Reflow", "Collect", "Send", "Receive", "Flush", "Destroy", "Lookup", "Release")
_ALWAYS = ("raise", "abort", "mozalloc_abort", "operator new")
"""Functions on top of many stacks that are not at fault."""
BROKEN = "this is no report"


def reports(count: int, *, seed: int = 0, broken: int = 0) -> Iterator[NewMessage]:
    """Reports by chance; the same ones for the same seed.

    :param broken: how many of them cannot be read.
    """
    chance = random.Random(seed)  # noqa: S311 - no secret
    faults = [_fault(chance) for _ in range(60)]
    bad = set(chance.sample(range(count), broken))
    for number in range(count):
        if number in bad:
            yield NewMessage(f"{BROKEN}: {number}")
            continue
        fault = faults[min(int(chance.expovariate(0.15)), len(faults) - 1)]
        report = {"number": number, "product": chance.choice(PRODUCTS), "version": f"12.{chance.randint(0, 4)}"}
        top = chance.sample(_ALWAYS, chance.randint(0, 2))
        frames = [{"frame": at, "function": name} for at, name in enumerate([*top, *fault])]
        yield NewMessage(json.dumps(report | {"frames": frames}), key=fault[0], content_type="application/json")


def _fault(chance: random.Random) -> list[str]:
    return [f"{chance.choice(_PLACES)}::{chance.choice(_DEEDS)}{chance.randint(1, 99)}" for _ in range(12)]
