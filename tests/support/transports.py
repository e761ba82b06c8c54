"""The ways to serve that a test runs through; each is a fixture ``<way>_door``.

``shipped`` is the shipped server over the embedded store, ``pyramid`` the Pyramid door over the same, ``cassandra`` the
shipped server over a real Cassandra node. A test that asks for a ``door`` or a ``server`` runs through all three; one that
reads while others append is marked ``while_writing`` and meets Cassandra by ``delayed``, a server with the usual read delay.

Through less go, by what they ask for instead:

- bytes on a connection, a full server, the examples of the docs (``test_raw_http``, ``test_load_limits``,
  ``test_docs_examples``): the shipped server alone, whose front is the same over any store;
- commands that speak HTTP (``test_cli``): the shipped server, likewise. Commands that open the store themselves have
  tests of their own over Cassandra (``test_cassandra_commands``);
- time passed in by hand (``test_contract_time``): embedded stores in process. With Cassandra the truth about time is with its
  nodes, so ``tests/contract`` moves the clock below the rules, and ``test_cassandra_delay`` waits.
"""

from __future__ import annotations

import pytest

WAYS = ("shipped", "pyramid", "cassandra")

while_writing = pytest.mark.parametrize("door", ["shipped", "pyramid", "delayed"], indirect=True)
"""For a test that reads while others append: nothing may be skipped, which on Cassandra takes the read delay (G3)."""
