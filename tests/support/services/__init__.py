"""Real Cassandra and ZooKeeper for tests, for benchmarks, and for a developer by hand.

``python -m tests.support.services --help`` starts them by hand. In code::

    with Cassandra(folder, nodes=3) as cassandra:
        cassandra.contact_points       # ["127.0.0.1", ...] and cassandra.port
        cassandra.nodes[1].kill()      # kill -9
        cassandra.nodes[1].start()     # on the same data
        cassandra.wait_until_up(1)

A process started here lives no longer than the process that holds its service: see :mod:`tests.support.services.guard`.
"""
