"""Systems of others for the load harness: their programs, fetched if need be."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.services.jars import go_programs, jars

__all__ = ["peer_options"]


def peer_options(system: str) -> Mapping[str, str]:
    """What its start needs beside what Debian has."""
    if system == "elasticmq":
        return {"jars": str(jars("elasticmq"))}
    if system == "nats":
        return {"program": str(go_programs("nats") / "nats-server")}
    return {}
