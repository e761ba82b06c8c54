"""The table of the outbox."""

from __future__ import annotations

from django.db import models

__all__ = ["OutboxMessage"]


class OutboxMessage(models.Model):
    """A message that waits to be sent."""

    queue = models.CharField(max_length=50)
    body = models.BinaryField()
    content_type = models.CharField(max_length=255, null=True)  # noqa: DJ001 -- a message without a content type
    fields = models.TextField()
    idempotency_key = models.CharField(max_length=255, unique=True)
    refused = models.TextField(null=True)  # noqa: DJ001 -- null while nothing refuses it
    """Why the server does not take it."""

    class Meta:
        """Of the table."""

        db_table = "queuey_outbox"

    def __str__(self) -> str:
        return f"message {self.pk} for {self.queue}"
