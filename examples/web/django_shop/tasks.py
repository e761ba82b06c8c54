"""The tasks of the shop; ``python -m django queuey_tasks`` runs them."""

from __future__ import annotations

from typing import Any

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task

from examples.web.django_shop.models import Order


@task()
def count_orders(customer: str) -> int:
    return int(Order.objects.filter(customer=customer).count())


@task(queue_name="thanks", takes_context=True)
def thank(context: Any, customer: str) -> str:
    return f"thank you, {customer} (attempt {context.attempt})"


@task()
def fail() -> None:
    raise ValueError("no luck")


@task()
async def double(number: int) -> int:
    return 2 * number
