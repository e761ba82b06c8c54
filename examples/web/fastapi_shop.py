"""A shop with FastAPI: ``uvicorn examples.web.fastapi_shop:app``.

QUEUEY_URL, QUEUEY_APPLICATION and QUEUEY_KEY name the server, and DATABASE a database of SQLAlchemy.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Request
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from qdo import NewMessage
from qdo.adapters.outbox.sqlalchemy import SqlOutbox
from qdo.aio import AsyncClient

engine = create_engine(os.environ.get("DATABASE", "sqlite:///shop.db"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    item: Mapped[str]


outbox = SqlOutbox(Base.metadata)  # its table is created and migrated with yours


class NewOrder(BaseModel):
    customer: str
    item: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    Base.metadata.create_all(engine)
    async with AsyncClient() as client:  # one for all requests
        await client.create_queue("feedback")
        app.state.queuey = client
        yield


app = FastAPI(lifespan=lifespan)


def queuey(request: Request) -> AsyncClient:
    client: AsyncClient = request.app.state.queuey
    return client


Queuey = Annotated[AsyncClient, Depends(queuey)]


@app.post("/feedback", status_code=202)
async def feedback(words: dict[str, str], client: Queuey) -> dict[str, str]:
    """Send in a request: the message is stored once this answers."""
    stored = await client.append("feedback", json=words)
    return {"id": stored.id.hex}


@app.post("/orders", status_code=201)
def order(new: NewOrder) -> dict[str, int]:
    """An order and the messages about it: all are stored, or none."""
    with Session(engine) as session:
        made = Order(customer=new.customer, item=new.item)
        session.add(made)
        session.flush()  # it has a number now
        outbox.add(session, "sales", NewMessage.of_json({"order": made.id, "item": new.item}))
        outbox.add(session, f"notices-{new.customer}", f"We have your order {made.id}")
        session.commit()
        return {"order": made.id}


@app.get("/notices/{customer}")
async def notices(customer: Annotated[str, Path(pattern="^[a-z]{1,30}$")], client: Queuey) -> dict[str, str]:
    """What a browser needs to follow the notices of a customer. Check first that it is theirs."""
    queue = f"notices-{customer}"
    await client.create_queue(queue)
    made = await client.new_token(queues=[queue], verbs=["read"], life_seconds=900)
    return {"url": client.url, "application": client.application, "queue": queue, "token": made.text}
