"""The application, as Django finds it."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["QueueyConfig"]


class QueueyConfig(AppConfig):
    """Its models are tables with names that begin with ``queuey_``."""

    name = "qdo.adapters.django"
    label = "queuey"
    verbose_name = "Queuey"
    default_auto_field = "django.db.models.BigAutoField"
