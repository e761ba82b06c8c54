"""``django.tasks`` of Django 6, or the package ``django-tasks`` before. Import it once a site is set up."""

from __future__ import annotations

try:
    from django.tasks import TaskResultStatus, default_task_backend, task_backends
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
except ImportError:  # before Django 6
    from django_tasks import TaskResultStatus, default_task_backend, task_backends
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist

__all__ = ["InvalidTask", "TaskResultDoesNotExist", "TaskResultStatus", "default_task_backend", "task_backends"]
