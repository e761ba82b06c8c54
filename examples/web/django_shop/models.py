"""The tables of the shop."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=30)
    item = models.CharField(max_length=100)

    def __str__(self) -> str:
        return f"order {self.pk}: {self.item}"
