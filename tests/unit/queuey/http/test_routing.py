"""Paths and their routes, compared with patterns that are tried one after the other."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queuey.api.routes import ROUTES
from queuey.errors import MethodNotAllowed, NotFound
from queuey.http.routing import Route

_LITERAL = sorted({part for route in ROUTES.table for part in route.pattern.split("/") if "{" not in part})
_PARTS = st.one_of(st.sampled_from([*_LITERAL, "v1", "v1"]), st.text("ab.\n", max_size=2))


def _tried(path: str) -> tuple[Route, list[str]] | None:
    """The first route whose pattern matches, with what stands for its variable parts."""
    for route in ROUTES.table:
        found = re.fullmatch(re.sub(r"{\w+}", "([^/]+)", route.pattern) + "/?", path)
        if found is not None:
            return route, [*found.groups()]
    return None


@given(st.lists(_PARTS, max_size=7).map("/".join))
@example("/v1/demo/jobs")
@example("/v1/demo/jobs/")
@example("/v1/demo/jobs//")
@example("/v1//jobs")
@example("/v1/demo/jobs/offsets")
@example("/v1/demo/jobs/leases/group/reset")
@example("/v1/demo/jobs/leases/group/other")
@example("v1/demo")
@example("/")
def test_a_path_has_the_route_of_the_first_pattern_that_matches(path: str) -> None:
    expected = _tried(path)
    if expected is None:
        with pytest.raises(NotFound):
            ROUTES.find("GET", path)
        return
    route, variable = expected
    for method, choice in route.methods.items():
        assert ROUTES.find(method, path) == (choice, variable)


def test_a_method_that_a_route_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        ROUTES.find("PUT", "/v1/demo/jobs/tasks")

    assert refused.value.headers == {"allow": "GET, HEAD"}
