"""The source as tests see it: its packages, modules and imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
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


def imports(module: str, path: Path, known: frozenset[str]) -> Iterator[str]:
    """Every module that is imported, anywhere in the file; a name taken from a package may be a module itself."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                yield deeper if deeper in known else base
