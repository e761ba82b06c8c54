"""Queuey beneath other frameworks, each with its own extra.

- :mod:`~qdo.adapters.kombu` is a transport for Celery, and whatever else is built on kombu.
- :mod:`~qdo.adapters.dramatiq` is a broker of dramatiq.
- :mod:`~qdo.adapters.outbox` sends what a transaction of a database wrote.
- :mod:`~qdo.adapters.django` has the outbox and a backend for tasks.
"""
