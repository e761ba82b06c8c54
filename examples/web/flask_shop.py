"""A shop with Flask: ``flask --app examples.web.flask_shop run``.

QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server, and DATABASE a database of SQLAlchemy.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, g, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from qdo import Client, NewMessage
from qdo.adapters.outbox.sqlalchemy import SqlOutbox

engine = create_engine(os.environ.get("DATABASE", "sqlite:///shop.db"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    item: Mapped[str]


outbox = SqlOutbox(Base.metadata)  # its table is created and migrated with yours
app = Flask(__name__)


def queuey() -> Client:
    """The client of this request: a client serves one thread."""
    if "queuey" not in g:
        g.queuey = Client()
    client: Client = g.queuey
    return client


@app.teardown_appcontext
def close(_: BaseException | None) -> None:
    client: Client | None = g.pop("queuey", None)
    if client is not None:
        client.close()


@app.cli.command("prepare")
def prepare() -> None:
    """Make the tables and queues: ``flask --app examples.web.flask_shop prepare``."""
    Base.metadata.create_all(engine)
    queuey().create_queue("feedback")


@app.post("/feedback")
def feedback() -> tuple[dict[str, Any], int]:
    """Send in a request: the message is stored once this answers."""
    stored = queuey().append("feedback", json=request.get_json())
    return {"id": stored.id.hex}, 202


@app.post("/orders")
def order() -> tuple[dict[str, Any], int]:
    """An order and the messages about it: all are stored, or none."""
    new = request.get_json()
    with Session(engine) as session:
        made = Order(customer=new["customer"], item=new["item"])
        session.add(made)
        session.flush()  # it has a number now
        outbox.add(session, "sales", NewMessage.of_json({"order": made.id, "item": made.item}))
        outbox.add(session, f"notices-{made.customer}", f"We have your order {made.id}")
        session.commit()
        return {"order": made.id}, 201


@app.get("/notices/<customer>")
def notices(customer: str) -> dict[str, Any]:
    """What a browser needs to follow the notices of a customer. Check first that it is theirs."""
    client, queue = queuey(), f"notices-{customer}"
    client.create_queue(queue)
    made = client.new_token(queues=[queue], verbs=["read"], life_seconds=900)
    return {"url": client.url, "application": client.application, "queue": queue, "token": made.text}
