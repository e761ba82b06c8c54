"""The experiments of the load harness on servers over Cassandra, which the harness does not start itself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from qdo.bench.document import Document
from qdo.bench.running import Experiment
from qdo.bench.workload import Workload, changed, find, load, scaled, variants
from tests.bench.on_cassandra.nodes import WARM_SECONDS, cluster
from tests.bench.plan import Plan
from tests.bench.servers import APPLICATION, KEY


def run(plan: Plan, name: str, nodes: int, servers: Sequence[int]) -> Sequence[Document]:
    """The documents of all its variants, by the driver that spreads over the servers, once the nodes are warm.

    :param plan: its seconds replace those of the workload, if they are not 0, and so do its rounds.
    :param servers: how many of them are in use; all variants are run with each number of them, one after the other.
    """
    workload = changed(load(find(name)), repeats=plan.rounds or None, start="")
    if plan.seconds:
        workload = scaled(workload, plan.seconds)
    with cluster(plan, nodes) as made, ExitStack() as running:
        keyspace = made.keyspace()
        urls = [running.enter_context(made.server(plan, keyspace)).url for _ in range(max(servers))]

        def carry_out(number: int, some: Workload) -> list[Document]:
            options = {"url": ",".join(urls[:number]), "application": APPLICATION, "key": KEY}
            found = Experiment(some, ("queuey-spread",), options, tell=plan.tell).run()
            return [document for document, _ in found]

        def warm(number: int, seconds: float) -> None:
            carry_out(number, _closed(workload, seconds))

        made.warm(min(workload.seconds, WARM_SECONDS), *(partial(warm, number) for number in servers))
        documents = list[Document]()
        for number in servers:
            made.rest()
            documents += [_of_servers(document, number, servers) for document in carry_out(number, workload)]
    return documents


def _closed(workload: Workload, seconds: float) -> Workload:
    """Its first variant as a closed loop, which has Java compile sooner than the load that is measured."""
    (_, first), *_ = variants(workload)
    return changed(first, phases=[{"seconds": seconds, "rate": 0}], warmup=0, repeats=1, drain=0)


def _of_servers(document: Document, number: int, servers: Sequence[int]) -> Document:
    """With the number of servers among the values that vary, if it does."""
    if len(servers) == 1:
        return document
    values = {"servers": number, **document["values"]}
    return {**document, "values": values, "label": f"{document['label']} servers={number}"}
