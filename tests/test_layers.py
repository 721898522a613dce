"""Rooms stand above each other: whatever a file imports, anywhere in it, lies in rooms below its own."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest

import engramma

ROOT = Path(engramma.__file__).parent
ROOMS = [  # from the ground up; parts of one row know nothing of each other
    {"interactions", "losses", "paper"},
    {"kernels"},
    {"network"},
    {"replicas", "optimiser", "measures"},
    {"streams"},
    {"methods"},
    {"train", "diagnostics"},
    {"checks"},
    {"models"},
    {"experiment"},
    {"store"},
    {"runs"},
    {"studies"},
    {"search"},
    {"show"},
    {"laws"},
    {"cli"},
]
FLOOR = {name: height for height, row in enumerate(ROOMS) for name in row}
LIBRARY = {name for name, height in FLOOR.items() if height < FLOOR["checks"] and name != "paper"}
BASE = {"torch", "numpy"}  # what the library half may import at once; anything else inside a function
# A kernel is imported only where it runs, and is free to need its compiler.
COMPILERS = {"numba", "triton", "llvmlite"}
FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem not in ("__init__", "__main__"))


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


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


def test_every_room_has_its_place() -> None:
    assert {room(path) for path in FILES} == set(FLOOR)


def test_few_files_lie_outside_a_room() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 12


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downwards(path: Path) -> None:
    tree, own = ast.parse(path.read_text()), room(path)
    used = {name.split(".")[1] for name in imports(tree) if name.startswith("engramma.")} - {
        "__version__",
        own,
    }
    upwards = {name for name in used if FLOOR[name] >= FLOOR[own]}
    assert not upwards, f"{path.relative_to(ROOT)} imports {sorted(upwards)}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if room(p) in LIBRARY], ids=lambda p: str(p.relative_to(ROOT))
)
def test_others_packages_are_imported_where_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    top = ast.Module([n for n in tree.body if not isinstance(n, ast.FunctionDef | ast.ClassDef)], [])
    roots = {name.split(".")[0] for name in imports(top)} - set(sys.stdlib_module_names)
    allowed = BASE | {"engramma"} | (COMPILERS if room(path) == "kernels" else set())
    assert roots <= allowed, f"{path.name} imports {sorted(roots - allowed)} at once"


def test_no_file_imports_in_a_circle() -> None:
    """Also not within a room, and not inside a function."""
    modules = {".".join(["engramma", *p.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__"): p
               for p in FILES}  # fmt: skip
    below: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = set()
        for part in ast.walk(ast.parse(path.read_text())):
            if isinstance(part, ast.ImportFrom) and part.module in modules:
                whole = {f"{part.module}.{a.name}" for a in part.names}
                found |= whole & set(modules)
                if not whole <= set(modules):
                    found.add(part.module)
        below[name] = found - {name}
    while ends := [
        n for n, used in below.items() if not used & set(below) or not any(n in u for u in below.values())
    ]:
        for name in ends:
            del below[name]
    assert not below, f"in a circle: {sorted(below)}"


FEW = 7  # parameters that a reader keeps apart; what goes together is one of them (`Options`, `Aim`)
# Functions that have more, and why. Commands are left out, whose options are typed by name, and compiled
# programs, which take arrays and numbers one by one and cannot take an object.
MORE = {
    "train.train": "what a run is built of, part by part, as the loop alone puts them together",
    "models.classifier.__init__": "scikit-learn wants every setting to be a parameter of its own",
    "models.layer.__init__": "settings, given by name, as those of PyTorch's own layers are",
}
COMPILED = {"njit", "jit"}


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    told = node.args
    names = [each.arg for each in (*told.posonlyargs, *told.args, *told.kwonlyargs)]
    more = [each for each in (told.vararg, told.kwarg) if each is not None]
    return len(names) + len(more) - (names[:1] in (["self"], ["cls"]))


def compiled(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Decorated as numba or Triton want it: `@njit(...)`, `@triton.jit`."""
    by = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(ast.unparse(each).rpartition(".")[2] in COMPILED for each in by)


def test_functions_have_few_parameters() -> None:
    from engramma.cli import app

    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    told = [command.callback for group in groups if group for command in group.registered_commands]
    commands = {f"{each.__module__}.{each.__name__}" for each in told if each}
    long = {
        f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}.{part.name}"
        for path in FILES
        for part in ast.walk(ast.parse(path.read_text()))
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        and parameters(part) > FEW
        and not compiled(part)
    }
    assert long - {name.removeprefix("engramma.") for name in commands} == MORE.keys()


def test_what_mutation_testing_names_is_there() -> None:
    """`make mutants` takes hours: a module that was moved is noticed here."""
    home = ROOT.parents[1]
    table = tomllib.loads((home / "benchmarks" / "mutants.toml").read_text())["tests"]
    assert table
    for module, files in table.items():
        assert importlib.util.find_spec(module), module
        assert files
        assert [file for file in files if not (home / file).is_file()] == []


@pytest.mark.parametrize(("one", "other"), [("figures", "report"), ("report", "figures")])
def test_figures_and_the_report_know_nothing_of_each_other(one: str, other: str) -> None:
    """What both need stands beside them in the room, once."""
    used = {
        name for path in (ROOT / "show" / one).glob("*.py") for name in imports(ast.parse(path.read_text()))
    }
    assert "engramma.show" in used
    assert [name for name in used if name.startswith(f"engramma.show.{other}")] == []
