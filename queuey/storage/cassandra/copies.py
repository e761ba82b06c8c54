"""Whether enough copies of what a keyspace has are up, by what the driver knows of the nodes.

Balancers take a server away that has a problem. So it is one only if no part of the keyspace has enough copies: then this
server can do nothing for anybody. If some parts have, it serves those, and every other server would refuse the rest as well.
That is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from cassandra.cluster import Cluster

__all__ = ["Copies"]


class Copies:
    """The copies of one keyspace."""

    def __init__(self, cluster: Cluster, keyspace: str) -> None:
        self._cluster, self._keyspace = cluster, keyspace

    def problems(self) -> Sequence[str]:
        """See :meth:`queuey.storage.MessageStore.problems`."""
        short, parts, down = self._short()
        if not short or short < parts:
            return ()
        return (f"no queue has enough copies in Cassandra, since nodes are down ({down}): start them",)

    def warnings(self) -> Sequence[str]:
        """See :meth:`queuey.storage.MessageStore.warnings`."""
        short, parts, down = self._short()
        if not short or short == parts:
            return ()
        return (
            f"{short} of {parts} parts of keyspace {self._keyspace} refuse, since nodes are down ({down}): start them",
        )

    def _short(self) -> tuple[int, int, str]:
        """How many parts of the ring have no quorum, of how many, and the nodes that are down."""
        nodes = self._cluster.metadata.all_hosts()
        down = {node for node in nodes if node.is_up is False}
        ring = self._cluster.metadata.token_map
        if not down or ring is None:
            return 0, 0, ""
        parts = (ring.tokens_to_hosts_by_ks.get(self._keyspace) or {}).values()
        short = sum(2 * len(down.intersection(copies)) >= len(copies) for copies in map(set, parts) if copies)
        return short, len(parts), ", ".join(sorted(node.address for node in down))
