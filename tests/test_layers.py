"""The library half imports nothing of the runner half, and nothing heavy at import."""

from __future__ import annotations

import ast
import importlib.util
import tomllib
from pathlib import Path

import pytest

import engramma

ROOT = Path(engramma.__file__).parent
LIBRARY = {
    "datasets",
    "diagnostics",
    "interactions",
    "kernels",
    "losses",
    "measures",
    "methods",
    "network",
    "optimiser",
    "replicas",
    "streams",
    "train",
}
BASE = {"torch", "numpy"}  # what the library half may import at once; anything else inside a function
# A kernel is imported only where it runs, and is free to need its compiler.
COMPILERS = {"numba", "triton", "llvmlite"}


def library_files() -> list[Path]:
    parts = [ROOT / f"{name}.py" for name in LIBRARY]
    return sorted([p for p in parts if p.exists()] + [p for n in LIBRARY for p in (ROOT / n).rglob("*.py")])


def imports(node: ast.AST) -> set[str]:
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            names |= {alias.name for alias in part.names}
        elif isinstance(part, ast.ImportFrom):
            assert part.level == 0, "imports are absolute"
            names.add(part.module or "")
            if part.module == "engramma":
                names |= {f"engramma.{alias.name}" for alias in part.names}
    return names


def test_every_part_of_the_library_is_there() -> None:
    assert len(library_files()) >= len(LIBRARY)
    for name in LIBRARY:
        assert (ROOT / f"{name}.py").exists() or (ROOT / name / "__init__.py").exists()


@pytest.mark.parametrize("path", library_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_library_imports_only_the_library(path: Path) -> None:
    tree = ast.parse(path.read_text())
    inside = {name.split(".")[1] for name in imports(tree) if name.startswith("engramma.")}
    assert inside <= LIBRARY, f"{path.name} imports {sorted(inside - LIBRARY)} of the runner half"


@pytest.mark.parametrize("path", library_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_others_packages_are_imported_where_they_are_used(path: Path) -> None:
    import sys

    tree = ast.parse(path.read_text())
    top = ast.Module([n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)], [])
    roots = {name.split(".")[0] for name in imports(top)} - set(sys.stdlib_module_names)
    allowed = BASE | {"engramma"} | (COMPILERS if path.parent.name == "kernels" else set())
    assert roots <= allowed, f"{path.name} imports {sorted(roots - allowed)} at once"


def test_what_mutation_testing_names_is_there() -> None:
    """`make mutants` takes hours: a module that was moved is noticed here."""
    home = ROOT.parents[1]
    table = tomllib.loads((home / "benchmarks" / "mutants.toml").read_text())["tests"]
    assert table
    for module, files in table.items():
        assert importlib.util.find_spec(module), module
        assert files
        assert [file for file in files if not (home / file).is_file()] == []
