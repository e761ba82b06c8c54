"""How large a run of the pipeline is, and what its messages look like."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from tests.bench.plan import BODY, BODY_BYTES

PARTITIONS = 8
CORES = 2
ROWS_OF_A_TRIGGER = 500
TAIL = BODY[: BODY_BYTES - 128]


@dataclass(frozen=True)
class SparkPlan:
    """What every topic of the pipeline gets."""

    folder: Path
    """On the disk that is to be measured: not a tmpfs."""
    rounds: int
    """How often baseline and subject are measured, in turn."""
    messages: int
    """Of 256 bytes, in eight partitions."""
    few: int
    """Messages that a reader's memory is compared with."""
    in_a_batch: int
    """Messages of a micro-batch, where they are limited."""
    triggers: int
    """Of one second each, that are measured one after the other."""
    tell: Callable[[str], None]

    def fresh(self, name: str) -> Path:
        """A folder of its own."""
        return Path(mkdtemp(prefix=f"{name}-", dir=self.folder))


FULL = {"messages": 2_000_000, "few": 20_000, "in_a_batch": 200_000, "triggers": 30}
QUICK = {"messages": 40_000, "few": 2_000, "in_a_batch": 10_000, "triggers": 6}


def body(number: int) -> bytes:
    """Half of it is text as in all other topics; the other half cannot be made shorter, so that Parquet has to keep it.

    >>> len(body(7))
    256
    """
    return (hashlib.sha512(b"%d" % number).hexdigest() + TAIL).encode()


BODY_IN_SQL = f"cast(concat(sha2(cast(id as string), 512), '{TAIL}') as binary)"
"""The same of a column ``id``."""
