"""Which calls the event loop serves by itself."""

from __future__ import annotations

from queuey.http.exchange import BATCH_JSON
from queuey.http.face import LARGE_BYTES, Operation
from queuey.server.faces import open_pipeline
from queuey.server.work import Work
from queuey.service import Service
from queuey.settings import load_settings
from queuey.sqs.signature import HASHED_ON_LOOP_BYTES

FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_a_body_stays_on_the_loop_up_to_what_its_operation_says() -> None:
    service = Service.open(load_settings(None, {}, {"storage": {"backend": "memory"}}))
    pipeline = open_pipeline(service)
    work = Work(pipeline, 1)

    def on_loop(length: int, path: str, headers: dict[str, str]) -> bool:
        call, operation = pipeline.open("POST", path, "", {**headers, "content-length": str(length)})
        assert isinstance(operation, Operation)
        return work.on_loop(operation, call)

    try:
        for most, path, headers in (
            (LARGE_BYTES, "/v1/demo/q", {"content-type": BATCH_JSON}),
            (HASHED_ON_LOOP_BYTES, "/", {"x-amz-target": "AmazonSQS.SendMessage"}),
            (HASHED_ON_LOOP_BYTES, "/284951520618/q", FORM),
        ):
            assert [on_loop(length, path, headers) for length in (0, most, most + 1)] == [True, True, False], path
    finally:
        work.close()
        service.close()
