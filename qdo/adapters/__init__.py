"""Queuey beneath other frameworks, each with its own extra.

:mod:`~qdo.adapters.kombu` is a transport for Celery and whatever else is built on kombu.
"""
