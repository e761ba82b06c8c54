"""The stores that a functional test runs over; the server is always the one that is shipped.

``shipped`` is the embedded store, ``cassandra`` a real Cassandra node; each is a fixture ``<name>_server``. A test that asks
for a ``running`` or a ``server`` runs over both; one that reads while others append is marked ``while_writing`` and meets
Cassandra by ``delayed``, a server with the usual read delay.

Of those over Cassandra `make test` has a third, others each time: what a store promises its contract says, which the whole of
``tests/contract`` asks of Cassandra in each run. Any run without ``--share`` has all of them.

Over less go, by what they ask for instead:

- bytes on a connection, a full server, the examples of the docs (``test_raw_http``, ``test_load_limits``,
  ``test_docs_examples``): the embedded store alone, since nothing of it is about a store;
- how an answer or a refusal is written, permissions, what tokens are good for, what the clients of 2012 send
  (``v1/test_forms``, ``v1/test_errors``, ``v1/test_identity``, ``test_identity``, ``test_tokens``, ``test_old_client``):
  likewise. ``test_alike`` compares the answers over Cassandra with the embedded store's, and ``test_isolation`` asks for
  every route over Cassandra, as some of the identities;
- commands that speak HTTP (``test_cli``): likewise. Commands that open the store themselves have tests of their own over
  Cassandra (``test_cassandra_commands``);
- time passed in by hand (``v1/test_time``): embedded stores in process, through the WSGI application. With Cassandra the
  truth about time is with its nodes, so ``tests/contract`` moves the clock below the rules, and ``test_cassandra_delay``
  waits.

The WSGI application goes through no test twice: ``test_alike`` compares its answers with those of the shipped server byte
for byte, and ``test_wsgi`` has what only it does: threads that wait, streams in their hands, credentials and pages of
other origins in an environ.
"""

from __future__ import annotations

import pytest

STORES = ("shipped", "cassandra")

while_writing = pytest.mark.parametrize("running", ["shipped", "delayed"], indirect=True)
"""For a test that reads while others append: nothing may be skipped, which on Cassandra takes the read delay (G3)."""
