"""Arguments of tasks: values in JSON, checked where they are sent and again where the task starts.

What the function gets equals what was sent, or the send is refused. So nothing changes on the way: a ``datetime`` for a
parameter without a type would come as text, and is refused; for a parameter of that type it comes as a ``datetime``.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

import msgspec
import msgspec.inspect

from qdo.tasks.wire import NO_JSON
from queuey.errors import ConfigurationError, InvalidParameter

__all__ = ["Arguments", "ReturnValue"]

_TYPED = (bytes, bytearray, datetime, date, time_of_day, timedelta, UUID, Decimal)
"""Types that have a form in JSON, which only a parameter of the same type takes back."""
_ADVICE = "send what it is made of, such as an id, or make it a dataclass or msgspec.Struct and name that as the type"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments:
    """The parameters of one function."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        """:raises ConfigurationError: the function has parameters that cannot be sent by name."""
        self._function, self._task = function, task
        self._signature = inspect.signature(function)
        for parameter in self._signature.parameters.values():
            if parameter.kind not in _NAMED:
                raise ConfigurationError(
                    f"task {task}: parameter {parameter}: arguments are sent by name, so name each parameter"
                )

    @property
    def names(self) -> list[str]:
        """Of the parameters, in their order."""
        return list(self._signature.parameters)

    @property
    def _takes(self) -> str:
        return ", ".join(self.names) or "no arguments"

    @property
    def required(self) -> list[str]:
        """Names of the parameters without a default."""
        empty = inspect.Parameter.empty
        return [one.name for one in self._signature.parameters.values() if one.default is empty]

    @cached_property
    def _hints(self) -> Mapping[str, Any]:
        """Types by parameter. Names in them may be defined below the function, so this is late.

        :raises ConfigurationError: a type does not exist.
        """
        try:
            hints = typing.get_type_hints(self._function, include_extras=True)
        except (NameError, TypeError) as error:
            raise ConfigurationError(f"task {self._task}: a type of its parameters is none: {error}") from error
        return {name: hints.get(name, Any) for name in self.names}

    @cached_property
    def _shape(self) -> type[msgspec.Struct]:
        """A type with a field for each parameter.

        :raises ConfigurationError: JSON has no form for a parameter's type.
        """
        fields: list[Any] = []
        for name, hint in self._hints.items():
            may_be_absent = name not in self.required
            fields.append((name, hint | msgspec.UnsetType, msgspec.UNSET) if may_be_absent else (name, hint))
        try:
            made = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            msgspec.json.Decoder(made)
        except TypeError as error:
            raise ConfigurationError(
                f"task {self._task}: JSON has no form for a type of its parameters: {error}"
            ) from error
        return made

    def check(self) -> None:
        """:raises ConfigurationError: a type does not exist, or JSON has no form for it."""
        _ = self._shape
        for name, hint in self._hints.items():
            if (foreign := next(_foreign(msgspec.inspect.type_info(hint), set()), None)) is not None:
                raise ConfigurationError(
                    f"task {self._task}: JSON has no form for {foreign.__name__}, the type of {name}: {_ADVICE}"
                )

    def encode(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
        """A JSON object of the arguments.

        :raises InvalidParameter: the function takes other arguments or types, or a value would change on the way.
        """
        try:
            sent = self._signature.bind(*given, **named).arguments
        except TypeError as error:
            raise InvalidParameter(f"task {self._task}: {error}; it takes {self._takes}") from error
        return self._encoded(sent)

    def encode_some(self, named: Mapping[str, Any]) -> bytes:
        """A JSON object of some of the arguments.

        :raises InvalidParameter: as :meth:`encode`.
        """
        try:
            sent = self._signature.bind_partial(**named).arguments
        except TypeError as error:
            raise InvalidParameter(f"task {self._task}: {error}; it takes {self._takes}") from error
        for name, value in sent.items():
            _checked(name, value, self._hints[name])
        return msgspec.json.encode(sent)

    def _encoded(self, sent: Mapping[str, Any]) -> bytes:
        plain = {name: _plain(name, value) for name, value in sent.items()}
        try:
            converted = msgspec.convert(plain, self._shape, builtin_types=_TYPED)
            body = msgspec.json.encode(converted)
            back = msgspec.json.decode(body, type=self._shape)
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            raise InvalidParameter(f"task {self._task}: {error}") from error
        for name, value in sent.items():
            _refuse_change(name, value, getattr(converted, name), getattr(back, name), self._hints[name])
        return body

    def decode(self, body: bytes) -> dict[str, Any]:
        """Arguments by name, each of its parameter's type.

        :raises InvalidParameter: they are not JSON, or not what the function takes.
        """
        try:
            found = msgspec.json.decode(body, type=self._shape)
        except NO_JSON as error:
            raise InvalidParameter(f"task {self._task}: {error}") from error
        values = {name: getattr(found, name) for name in self.names}
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def _foreign(found: Any, seen: set[int]) -> Iterator[type]:
    """Classes that JSON has no form for.

    :param found: what msgspec knows of a type, whole or a part of it.
    :param seen: ids of parts that were looked at: a type may contain itself.
    """
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, msgspec.inspect.CustomType):
        yield found.cls
    elif isinstance(found, tuple | list):
        for part in found:
            yield from _foreign(part, seen)
    elif isinstance(found, msgspec.inspect.Type | msgspec.inspect.Field):
        for field in found.__struct_fields__:
            yield from _foreign(getattr(found, field), seen)


class ReturnValue:
    """What a function returns, in JSON and back."""

    def __init__(self, function: Callable[..., Any], task: str) -> None:
        self._function, self._task = function, task

    @cached_property
    def _hint(self) -> Any:
        try:
            return typing.get_type_hints(self._function, include_extras=True).get("return", Any)
        except (NameError, TypeError):
            return Any

    def encode(self, value: Any) -> bytes:
        """:raises InvalidParameter: JSON has no form for the value, or it would come back as another one."""
        return _checked("result", value, self._hint)

    def decode(self, body: bytes) -> Any:
        """:raises InvalidParameter: the body is no such value."""
        try:
            return msgspec.json.decode(body, type=self._hint)
        except (*NO_JSON, TypeError) as error:
            raise InvalidParameter(f"the result of task {self._task}: {error}") from error


def _checked(name: str, value: Any, hint: Any) -> bytes:
    """A value in JSON.

    :raises InvalidParameter: it is not of this type, or would come back as another value.
    """
    try:
        converted = msgspec.convert(_plain(name, value), hint, builtin_types=_TYPED)
        body = msgspec.json.encode(converted)
        back = msgspec.json.decode(body, type=hint)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise InvalidParameter(problems={name: str(error)}) from error
    _refuse_change(name, value, converted, back, hint)
    return body


def _plain(name: str, value: Any) -> Any:
    """The value made of what JSON has, and of the types that JSON has a form for."""
    try:
        return msgspec.to_builtins(value, builtin_types=_TYPED)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameter(problems={name: f"{error}: {_ADVICE}"}) from error


def _refuse_change(name: str, sent: Any, converted: Any, back: Any, hint: Any) -> None:
    """:raises InvalidParameter: what comes back is not what was sent."""
    kept = sent if hint is Any else converted
    if back == kept or (hint is not Any and _builtins(back) == _builtins(kept)):
        return
    kind, other = type(sent).__name__, type(back).__name__
    problem = (
        f"a {kind} comes back as {other}: name its type at the parameter, or send a {other}"
        if kind != other
        else f"some of this {kind} comes back as another value: name its type at the parameter"
    )
    raise InvalidParameter(problems={name: problem})


def _builtins(value: Any) -> Any:
    return msgspec.to_builtins(value, builtin_types=_TYPED)
