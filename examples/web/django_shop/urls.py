"""The addresses of the shop."""

from __future__ import annotations

from django.urls import path

from examples.web.django_shop import views

urlpatterns = [
    path("feedback", views.feedback),
    path("orders", views.order),
    path("notices/<slug:customer>", views.notices),
]
