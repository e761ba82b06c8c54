"""An application of Django: the outbox, and a backend for tasks.

``INSTALLED_APPS = [..., "qdo.adapters.django"]`` adds the table of the outbox. :mod:`qdo.adapters.django.outbox` writes to it, and
``manage.py queuey_outbox`` sends. :mod:`qdo.adapters.django.tasks` is the backend, and ``manage.py queuey_tasks`` its worker.
"""
