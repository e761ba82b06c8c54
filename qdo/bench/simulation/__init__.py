"""Past this machine: a discrete-event model of servers, stores, groups and receivers (``queuey bench simulate``).

A *scenario* is a file, as a workload is. What an operation costs is measured: :mod:`qdo.bench.simulation.costs` reads it
from a file that ``python -m tests.bench predict`` writes, and that command compares predictions with runs.

A scenario has up to four parts, each with a model of its own: the traffic of many queues on servers and nodes, the
receivers of one queue, the members of a worker group, and what grows with the number of queues. Each says how much of
each limit is used. The largest use is the first limit.
"""
