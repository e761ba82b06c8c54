"""Whether anybody reads what this process prints: in ``... | head`` that ends sooner than the process."""

from __future__ import annotations

import select

__all__ = ["nobody_reads"]

_GONE = select.POLLERR | select.POLLHUP


def nobody_reads() -> bool:
    """Whether the reader of standard output, or of standard error, has gone. A file has no reader that could go."""
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)  # errors are told without being asked for
    return any(told & _GONE for _, told in poll.poll(0))
