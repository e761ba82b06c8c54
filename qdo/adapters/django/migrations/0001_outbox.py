"""Makes the table of the outbox."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first one."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            "OutboxMessage",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("queue", models.CharField(max_length=50)),
                ("body", models.BinaryField()),
                ("content_type", models.CharField(max_length=255, null=True)),
                ("fields", models.TextField()),
                ("idempotency_key", models.CharField(max_length=255, unique=True)),
                ("refused", models.TextField(null=True)),
            ],
            options={"db_table": "queuey_outbox"},
        )
    ]
