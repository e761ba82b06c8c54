"""A shop with Django, with tasks and an outbox. ``DJANGO_SETTINGS_MODULE=examples.web.django_shop.settings`` names it.

QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server of Queuey, and DATABASE a file for SQLite.
"""
