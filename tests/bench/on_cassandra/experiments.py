"""The experiments of the load harness on servers over Cassandra, which the harness does not start itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from qdo.bench.document import Document
from qdo.bench.running import Experiment
from qdo.bench.workload import changed, find, load, scaled
from tests.bench.on_cassandra.nodes import cluster
from tests.bench.plan import Plan
from tests.bench.servers import APPLICATION, KEY


def run(plan: Plan, name: str, nodes: int, servers: Sequence[int]) -> Sequence[Document]:
    """The documents of all its variants, by the driver that spreads over the servers.

    :param plan: its seconds replace those of the workload, if they are not 0, and so do its rounds.
    :param servers: how many of them are in use; all variants are run with each number of them, one after the other.
    """
    workload = changed(load(find(name)), repeats=plan.rounds or None, start="")
    if plan.seconds:
        workload = scaled(workload, plan.seconds)
    with cluster(plan, nodes) as made, ExitStack() as running:
        keyspace = made.keyspace()
        urls = [running.enter_context(made.server(plan, keyspace)).url for _ in range(max(servers))]
        documents = list[Document]()
        for number in servers:
            options = {"url": ",".join(urls[:number]), "application": APPLICATION, "key": KEY}
            found = Experiment(workload, ("queuey-spread",), options, tell=plan.tell).run()
            documents += [_of_servers(document, number, servers) for document, _ in found]
    return documents


def _of_servers(document: Document, number: int, servers: Sequence[int]) -> Document:
    """With the number of servers among the values that vary, if it does."""
    if len(servers) == 1:
        return document
    values = {"servers": number, **document["values"]}
    return {**document, "values": values, "label": f"{document['label']} servers={number}"}
