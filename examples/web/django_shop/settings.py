"""The settings of the shop: what is of Queuey stands at the end."""

from __future__ import annotations

import os
import secrets

import django

SECRET_KEY = os.environ.get("SECRET_KEY") or secrets.token_hex()
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "examples.web.django_shop.urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE", "shop.db"),
        "OPTIONS": {"timeout": 60},
    }
}
INSTALLED_APPS = ["examples.web.django_shop", "qdo.adapters.django"]
if django.VERSION < (6,):
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {"BACKEND": "qdo.adapters.django.tasks.QueueyTaskBackend", "QUEUES": ["default", "thanks"]}}
