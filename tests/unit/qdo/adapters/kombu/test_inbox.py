"""What a thread that drains gets of a connection that another one closes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from qdo.adapters.kombu.inbox import ConnectionInbox

SECONDS = 60


@pytest.mark.timeout(SECONDS)
def test_whoever_waits_for_a_message_hears_that_the_connection_is_closed() -> None:
    """It waited for ever."""
    inbox = ConnectionInbox()
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(inbox.take, None)

        assert inbox.close() == []

        assert isinstance(waits.exception(SECONDS), ConnectionError)
    with pytest.raises(ConnectionError):
        inbox.take(0)
