"""``django.tasks`` of Django 6, or the package ``django-tasks`` before."""

from __future__ import annotations

try:
    from django import tasks
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
except ImportError:  # before Django 6
    import django_tasks as tasks
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist

__all__ = ["InvalidTask", "TaskResultDoesNotExist", "tasks"]
