"""Pages of the Python API, from signatures and docstrings.

What stands in the source is what the page shows: annotations as they are written, and docstrings as Markdown.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from queuey.errors import error_classes

from .blocks import table
from .docstrings import Links, markdown

__all__ = ["ApiPage", "api_pages", "pages"]

OURS = ("qdo", "queuey")
LEFT_OUT = {
    *("from_wire", "handed_out", "to_wire"),
    *("clock", "outcome", "plain", "reject_if_refused", "take_over", "work"),
    *("onQueryStarted", "onQueryIdle", "onQueryProgress", "onQueryTerminated"),
}
"""Members of values for the clients themselves; of contexts and workers for the worker; and those that Spark calls."""
WIDTH = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ApiPage:
    """One page: the public names of some modules."""

    title: str
    text: str
    modules: Mapping[str, Sequence[str] | None]
    """Names in the order of the page; None for all public ones of the module."""
    calls_of: str | None = None
    """The class of another page that has the same calls: they get one line and a link."""

    def names(self) -> Iterator[tuple[str, Any]]:
        for module, names in self.modules.items():
            found = importlib.import_module(module)
            yield from ((name, getattr(found, name)) for name in names or found.__all__)


def _first(module: str, *names: str) -> list[str]:
    """The public names of a module, some of them before the others."""
    return [*names, *(name for name in importlib.import_module(module).__all__ if name not in names)]


def pages() -> dict[str, ApiPage]:
    """Each page by its name, as the sidebar has them."""
    return {
        "client": ApiPage(
            "qdo.client",
            "[The guide](../client.md) shows how the client is used. `from qdo import Client` finds it, and the values below.",
            {"qdo.client": _first("qdo.client", "Client", "NewMessage", "Message", "Page", "Delivery")},
        ),
        "aio": ApiPage(
            "qdo.aio",
            "The client for asyncio: the calls, values and errors of [qdo.client](client.md), with `await`. It needs "
            "`pip install '/path/to/queuey[aio]'`. [The guide](../client.md#asyncio) shows how it is used.",
            {"qdo.aio": _first("qdo.aio", "AsyncClient")},
            calls_of="Client",
        ),
        "tasks": ApiPage(
            "qdo.tasks",
            "Functions that workers call. [The guide](../tasks.md) shows how they are used. `from qdo import task` finds them.",
            {"qdo.tasks": _first("qdo.tasks", "task", "DeclaredTask", "TaskSender", "TaskResult", "TaskOptions")},
        ),
        "worker": ApiPage(
            "qdo.worker",
            "Workers in your own program. [The guide](../workers.md) shows how they are used. `from qdo import Worker` finds them.",
            {"qdo.worker": _first("qdo.worker", "Worker", "WorkerOptions", "Context")},
        ),
        "pipeline": ApiPage(
            "qdo.pipeline",
            "Queues in Spark. [The guide](../pipeline.md) shows how they are read and written, and [a page of their own](../pipeline-jobs.md) what the "
            "jobs do. They need `pip install '/path/to/queuey[spark]'`.",
            {
                "qdo.pipeline": None,
                "qdo.pipeline.bodies": None,
                "qdo.pipeline.progress": ("LagListener", "QueryLag"),
                "qdo.pipeline.jobs.session": ("session", "lean_home"),
                "qdo.pipeline.jobs.messages": ("read_messages",),
                "qdo.pipeline.jobs.archive": ("archive", "Archive"),
                "qdo.pipeline.jobs.replay": ("replay", "restore", "preview", "Chosen"),
                "qdo.pipeline.jobs.report": ("report", "Report"),
                "qdo.pipeline.jobs.stats": ("stats", "Stats"),
                "qdo.pipeline.jobs.dead_letters": ("dead_letters", "DeadLetterReport"),
            },
        ),
    }


def api_pages() -> dict[str, str]:
    """The text of each page by its name."""
    found = pages()
    index = _Index(found)
    return {name: index.page(name) for name in found}


class _Index:
    """Every name of the pages, and where it is described."""

    def __init__(self, found: Mapping[str, ApiPage]) -> None:
        self._pages = found
        self._places = {name: page for page, shown in found.items() for name, _ in shown.names()}

    def page(self, name: str) -> str:
        shown = self._pages[name]
        parts = [f"# {shown.title}", shown.text]
        for module in shown.modules:
            names = ApiPage("", "", {module: shown.modules[module]}).names()
            if len(shown.modules) > 1:
                parts.append(f"## {module}")
            for symbol, value in names:
                parts += self._described(symbol, value, module, name)
        return "\n\n".join(part for part in parts if part) + "\n"

    def _described(self, symbol: str, value: Any, module: str, page: str) -> Iterator[str]:
        mark = "###" if len(self._pages[page].modules) > 1 else "##"
        yield f"{mark} {symbol}"
        if isinstance(value, type):
            yield from self._class(value, page, mark)
        elif inspect.isfunction(value):
            *overloads, node = _definitions(_tree(value.__module__), value.__name__)
            yield _fenced("\n".join(_signature(one, {}) for one in overloads or [node]))
            yield markdown(ast.get_docstring(node) or "", self._links(page, None))
        else:
            text, said = _alias(symbol, module)
            yield _fenced(text)
            yield markdown(said, self._links(page, None))

    def _class(self, cls: type, page: str, mark: str) -> Iterator[str]:
        links = self._links(page, cls)
        fields = list(_fields(cls))
        begin = next((node for name, _, node in _members(cls) if name == "__init__"), None)
        if begin is not None:
            yield _fenced(f"class {_signature(begin, {}, cls.__name__)}")
        yield markdown(_docstring(cls), links)
        if begin is not None:
            yield markdown(ast.get_docstring(begin) or "", links)
        if fields:
            yield table(("Field", "Type", "Default", "Meaning"), [field.cells(links) for field in fields])
        elif attributes := list(_attributes(cls)):
            rows = [one.cells(links) for one in attributes]
            yield table(("Attribute", "Type", "Meaning"), [(name, kind, text) for name, kind, _, text in rows])
        calls_of = self._pages[page].calls_of
        for name, owner, node in _members(cls):
            if name != "__init__":
                yield f"{mark}# {cls.__name__}.{name}" if name != "__call__" else f"{mark}# {cls.__name__}()"
                yield _fenced(_signature(node, _bound(cls), waits=_waits(cls)))
                said = ast.get_docstring(node) or ""
                if calls_of and owner is not cls and owner.__name__.endswith("Calls"):
                    yield f"As [{calls_of}.{name}]({self._place(page, calls_of)}{name.lower()})."
                else:
                    yield markdown(said, links)

    def _place(self, page: str, name: str) -> str:
        """A link from a page to a documented name."""
        target = self._places[name.partition(".")[0]]
        anchor = re.sub(r"[^\w-]", "", name.lower())
        return f"#{anchor}" if target == page else f"{target}.md#{anchor}"

    def _links(self, page: str, cls: type | None) -> Links:
        """Names in a docstring: of the pages, members of the class itself, and errors."""
        own = {name for name, _, _ in _members(cls)} if cls else set()

        def link(name: str) -> str | None:
            if cls and name in own and cls.__name__ in self._places:
                return self._place(page, f"{cls.__name__}.{name}")
            if name.partition(".")[0] in self._places:
                return self._place(page, name)
            return f"../errors.md#{name.lower()}" if name in error_classes() else None

        return link


# What stands in the source.


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(str(sys.modules[module].__file__)).read_text())


def _definitions(tree: ast.Module, name: str) -> list[Function]:
    """A function of a module: its overloads, and last what they stand for."""
    return [node for node in tree.body if isinstance(node, Function) and node.name == name]


def _class_node(cls: type) -> ast.ClassDef:
    body = _tree(cls.__module__).body
    return next(node for node in body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)


def _docstring(cls: type) -> str:
    return ast.get_docstring(_class_node(cls)) or ""


def _alias(name: str, module: str) -> tuple[str, str]:
    """``Name = type`` and the text below it, from the module that has it."""
    for owner in [module, *(key for key in sys.modules if key.startswith(f"{module}."))]:
        body = _tree(owner).body
        for node, after in pairwise([*body, None]):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return ast.unparse(node), _text(after)
    raise KeyError(name)


def _text(node: ast.AST | None) -> str:
    """The text that describes what stands above it."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


def _ours(cls: type) -> list[type]:
    """A class and what it inherits from this project."""
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] in OURS]


def _members(cls: type) -> Iterator[tuple[str, type, Function]]:
    """Public methods and properties, in the order of the source, its own before those of its bases."""
    seen: set[str] = set()
    for base in _ours(cls):
        for node in _class_node(base).body:
            if not isinstance(node, Function) or node.name in seen or "overload" in _decorators(node):
                continue
            called = node.name == "__call__" and ast.get_docstring(node)
            begins = node.name == "__init__" and base is cls
            if begins or called or not (node.name.startswith("_") or node.name in LEFT_OUT):
                seen.add(node.name)
                yield node.name, base, node


def _decorators(node: Function) -> set[str]:
    return {ast.unparse(one).partition("(")[0] for one in node.decorator_list}


@dataclass(frozen=True)
class _Field:
    """A field of a value, or an attribute."""

    name: str
    type: str
    default: str
    text: str

    def cells(self, links: Links) -> tuple[str, ...]:
        return f"`{self.name}`", _code(self.type), _code(self.default), " ".join(markdown(self.text, links).split())


def _fields(cls: type) -> Iterator[_Field]:
    if not is_dataclass(cls):
        return
    for base in reversed(_ours(cls)):
        body = _class_node(base).body if is_dataclass(base) else []
        for node, after in pairwise([*body, None]):
            if isinstance(node, ast.AnnAssign) and not (name := ast.unparse(node.target)).startswith("_"):
                default = _default(node.value) if node.value else ""
                yield _Field(name, ast.unparse(node.annotation), default, _text(after))


def _attributes(cls: type) -> Iterator[_Field]:
    """What the class sets or its constructor, and describes below, in the order of the source."""
    for base in reversed(_ours(cls)):
        node = _class_node(base)
        yield from _set(node.body, {})
        begin = next((one for one in node.body if isinstance(one, Function) and one.name == "__init__"), None)
        if begin is not None:
            given = (*begin.args.args, *begin.args.kwonlyargs)
            yield from _set(begin.body, {one.arg: one.annotation for one in given if one.annotation})


def _set(body: Sequence[ast.stmt], types: Mapping[str, ast.expr]) -> Iterator[_Field]:
    """The public names that are set with a text below.

    :param types: of the parameters, one of which a line may keep.
    """
    for line, after in pairwise([*body, None]):
        if not (isinstance(line, ast.Assign | ast.AnnAssign) and _text(after)):
            continue
        target = line.targets[0] if isinstance(line, ast.Assign) else line.target
        kept = types.get(line.value.id) if isinstance(line.value, ast.Name) else None
        annotation = line.annotation if isinstance(line, ast.AnnAssign) else kept
        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
            name = ast.unparse(one).removeprefix("self.")
            if not name.startswith("_") and name not in LEFT_OUT:
                yield _Field(name, ast.unparse(annotation) if annotation else "", "", _text(after))


def _default(value: ast.expr) -> str:
    """As a reader writes it: the value that ``field`` gives."""
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
        return ast.unparse(value)
    given = {one.arg: ast.unparse(one.value) for one in value.keywords}
    factory = given.get("default_factory", "")
    return given.get("default", {"dict": "{}", "list": "[]", "": ""}.get(factory, f"{factory}()"))


# Signatures.


def _waits(cls: type) -> bool:
    """Whether its calls are awaited."""
    return any(base.__name__ == "Awaits" for base in _ours(cls))


def _bound(cls: type) -> dict[str, str]:
    """The type variables of its bases that it fills in."""
    found: dict[str, str] = {}
    for base in _ours(cls):
        for one in getattr(base, "__orig_bases__", ()):
            origin = get_origin(one)
            for variable, given in zip(getattr(origin, "__parameters__", ()), get_args(one), strict=False):
                if not isinstance(given, TypeVar):
                    found.setdefault(variable.__name__, given.__name__)
    return found


def _signature(node: Function, bound: Mapping[str, str], name: str | None = None, *, waits: bool = False) -> str:
    """How it is called, and what that gives.

    :param bound: what stands in place of type variables.
    :param name: of the class, whose constructor it is; it gives nothing then.
    """
    decorators = _decorators(node)
    gives = ast.unparse(node.returns) if node.returns else ""
    before = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    if "call" in decorators:
        before, gives = "async " if waits else "", gives.removeprefix("Steps[").removesuffix("]")
    elif "listing" in decorators:
        gives = gives.replace("Listing[", "AsyncIterator[" if waits else "Iterator[")
    elif found := decorators & {"contextmanager", "asynccontextmanager"}:
        before = "async with " if "asynccontextmanager" in found else "with "
        gives = gives.partition("[")[2].removesuffix("]").removeprefix("None")
    elif "classmethod" in decorators:
        before = "classmethod "
    for variable, given in bound.items():
        gives = re.sub(rf"\b{variable}\b", given, gives)
    if "property" in decorators:
        return f"{node.name}: {gives}"
    shown = name or ("" if node.name == "__call__" else node.name)
    after = "" if name or not gives else f" -> {gives}"
    parameters = list(_parameters(node.args))
    line = f"{before}{shown}({', '.join(parameters)}){after}"
    if len(line) <= WIDTH:
        return line
    return f"{before}{shown}(\n    " + ",\n    ".join(parameters) + f",\n){after}"


def _parameters(given: ast.arguments) -> Iterator[str]:
    """Each parameter, and the marks between them; ``self`` and ``cls`` are not written by callers."""
    placed = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [*[None] * (len(placed) - len(given.defaults)), *given.defaults]
    for number, (one, default) in enumerate(zip(placed, defaults, strict=True), 1):
        if one.arg not in ("self", "cls"):
            yield _parameter(one, default)
        if number == len(given.posonlyargs) and one.arg not in ("self", "cls"):
            yield "/"
    if given.vararg:
        yield "*" + _parameter(given.vararg, None)
    elif given.kwonlyargs:
        yield "*"
    for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(one, default)
    if given.kwarg:
        yield "**" + _parameter(given.kwarg, None)


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(one.annotation)}" if one.annotation else ""
    if default is None:
        return f"{one.arg}{annotation}"
    value = ast.unparse(default)
    value = "..." if value.startswith("_") else value
    return f"{one.arg}{annotation} = {value}"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _fenced(text: str) -> str:
    return f"```python\n{text}\n```"
