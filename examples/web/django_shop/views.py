"""The pages of the shop."""

from __future__ import annotations

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from examples.web.django_shop.models import Order
from examples.web.django_shop.tasks import thank
from qdo import Client, NewMessage
from qdo.adapters.django import outbox


@csrf_exempt
@require_POST
def feedback(request: HttpRequest) -> JsonResponse:
    """Send in a request: the message is stored once this answers."""
    with Client() as client:
        client.create_queue("feedback")
        stored = client.append("feedback", json=json.loads(request.body))
    return JsonResponse({"id": stored.id.hex}, status=202)


@csrf_exempt
@require_POST
def order(request: HttpRequest) -> JsonResponse:
    """An order and the messages about it: all are stored, or none."""
    new = json.loads(request.body)
    with transaction.atomic():
        made = Order.objects.create(customer=new["customer"], item=new["item"])
        outbox.add("sales", NewMessage.of_json({"order": made.pk, "item": made.item}))
        outbox.add(f"notices-{made.customer}", f"We have your order {made.pk}")
    result = thank.enqueue(made.customer)
    return JsonResponse({"order": made.pk, "task": result.id}, status=201)


@require_GET
def notices(request: HttpRequest, customer: str) -> JsonResponse:
    """What a browser needs to follow the notices of a customer. Check first that it is theirs."""
    queue = f"notices-{customer}"
    with Client() as client:
        client.create_queue(queue)
        made = client.new_token(queues=[queue], verbs=["read"], life_seconds=900)
    return JsonResponse({"url": client.url, "application": client.application, "queue": queue, "token": made.text})
