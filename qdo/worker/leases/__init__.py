"""Work on leased messages: any number of workers, without partitions or owners to think of.

::

    LeaseBuffer ◄─ requests due, answers ─► LeaseSenders ─► the server
         ▲
         └─ messages, endings ─► LeaseThreads ─► the job

:class:`~qdo.worker.leases.buffer.LeaseBuffer` knows what this worker holds (:mod:`~qdo.worker.leases.holdings`), and
which request is due (:mod:`~qdo.worker.leases.due`). A few threads send the requests, others call the job. One request
is about all queues, or as many as the server takes (:mod:`~qdo.worker.leases.queue_sets`).
"""
