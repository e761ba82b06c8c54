"""The source as tests see it: its packages and modules, what they import, the words in them."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED_PACKAGES = ("queuey", "qdo", "pyspark_queuey")
PACKAGES = (*SHIPPED_PACKAGES, "examples")


def name_of(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path = ROOT, packages: Sequence[str] = PACKAGES) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            yield name_of(path, root), path


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file that does not change any more."""
    return ast.parse(path.read_text())


def imports(module: str, path: Path, known: frozenset[str]) -> Iterator[str]:
    """Every module that is imported, anywhere in the file; a name taken from a package may be a module itself."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                yield deeper if deeper in known else base


def import_graph(root: Path, packages: Sequence[str]) -> dict[str, set[str]]:
    """Each module and the other modules of these packages that it imports, type-only and lazy imports included."""
    found = list(modules(root, packages))
    known = frozenset(module for module, _ in found)
    return {module: (set(imports(module, path, known)) & known) - {module} for module, path in found}


def classes(path: Path) -> Iterator[ast.ClassDef]:
    """Every class of a module, classes in classes included."""
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef))


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(node: ast.AST, above: str = "") -> Iterator[tuple[str, Function, bool]]:
    """Every function below a node: its dotted name, its definition, and whether a class holds it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield above + child.name, child, isinstance(node, ast.ClassDef)
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from functions(child, f"{above}{child.name}." if named else above)  # type: ignore[attr-defined]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of a graph that have more than one node (Tarjan 1972), each in alphabetical order."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found = []

    def visit(node: str) -> None:
        number[node] = lowest[node] = len(number)
        path.append(node)
        for target in sorted(graph[node]):
            if target not in number:
                visit(target)
                lowest[node] = min(lowest[node], lowest[target])
            elif target in path:
                lowest[node] = min(lowest[node], number[target])
        if lowest[node] == number[node]:
            begin = path.index(node)
            if len(path) - begin > 1:
                found.append(sorted(path[begin:]))
            del path[begin:]

    for node in graph:
        if node not in number:
            visit(node)
    return sorted(found)


@cache
def prose(path: Path) -> str:
    """What a person reads in a file that does not change any more: comments and strings of Python, all of other texts."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    return "\n".join(
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type in kinds
    )
