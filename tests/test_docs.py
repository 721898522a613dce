from __future__ import annotations

import ast
import dataclasses
import importlib.util
import pkgutil
import re
import sys
from pathlib import Path

import page
import pytest
import torch
from test_layers import ROOMS
from typer.testing import CliRunner

import engramma as en
from engramma.checks import module_name
from engramma.cli import app
from engramma.interactions import INTERACTIONS
from engramma.methods import METHODS, Method
from engramma.models.energies import ENERGIES
from engramma.models.hopfield import RULES


def test_the_page_on_adding_a_method_runs() -> None:
    """Both blocks, as they stand: the class is a method, and freezing half of the memories keeps more of
    task one than freezing none."""
    found = page.run(*page.blocks())
    accuracy = found["accuracy"]
    assert isinstance(found["method"], Method)
    assert isinstance(accuracy, torch.Tensor)
    assert accuracy.shape == (4, 2)
    none, half = accuracy[[0, 2], 0].mean(), accuracy[[1, 3], 0].mean()
    assert half > none + 0.05


OWN = {"adding-an-interaction": "smooth.py", "adding-a-stream": "codes.py"}


@pytest.mark.parametrize("name", OWN)
def test_the_pages_on_adding_one_s_own_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks, as they stand, the first being the file that the others name. What it makes is learned."""
    monkeypatch.chdir(tmp_path)
    first, *rest = page.blocks(page.PAGE.parent / f"{name}.md")
    (tmp_path / OWN[name]).write_text(first)
    try:
        found = page.run(first, *rest)
    finally:
        sys.modules.pop(module_name(f"./{OWN[name]}"))  # that it is there: it was the file that was named
    result = found["result"]
    assert isinstance(result, en.Result)
    assert result.accuracy.diagonal(axis1=1, axis2=2).min() > 0.4  # of four classes, or ten
    if name == "adding-a-stream":  # what is rehearsed is kept
        assert (result.average[1::2] > result.average[::2] + 0.1).all()


def test_the_page_on_one_s_own_data_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks, and the commands between them."""
    monkeypatch.chdir(tmp_path)
    place = page.PAGE.parent / "your-own-data.md"
    found = page.run(*page.blocks(place))
    result, stream = found["result"], found["stream"]
    assert isinstance(result, en.Result)
    assert result.average.min() > 0.6  # of ten classes
    assert isinstance(stream, en.ClassStream)
    assert len(stream) == 3
    commands = re.findall(r"^    engramma (.*)$", place.read_text(), flags=re.M)
    assert len(commands) == 2
    small = ["", " --tasks 2 --memories 4 --epochs 2 --seeds 1 --device cpu"]
    for line, more in zip(commands, small, strict=True):
        done = CliRunner().invoke(app, f"{line}{more}".split())
        assert done.exit_code == 0, done.output
    assert "zero" in CliRunner().invoke(app, commands[0].split()).stdout


def test_the_page_on_associative_memory_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All blocks, one after the other; what they print is what the page says of it."""
    monkeypatch.chdir(tmp_path)
    found = page.run(*page.blocks(page.PAGE.parent / "associative.md"))
    share, *trace, whole, shares = capsys.readouterr().out.splitlines()
    assert (share, whole) == ("1.0", "True")
    assert " ".join(trace).startswith("tensor([-")
    told = ast.literal_eval(shares)
    assert told["inverse"] + told["mixture"] > 0.3
    patterns, random, attractors = found["patterns"], found["random"], found["attractors"]
    cubic = en.AssociativeMemory(vertex=3)
    cubic.store(patterns[:9])  # type: ignore[index]
    odd = attractors(cubic, random, patterns[:9]).shares()  # type: ignore[operator,index]
    assert odd["inverse"] == 0
    assert odd["mixture"] < told["mixture"]
    assert (tmp_path / "patterns.memory").is_file()


def test_every_energy_and_rule_stands_on_the_page() -> None:
    text = (page.PAGE.parent / "associative.md").read_text()
    for name in (*INTERACTIONS, *ENERGIES, *RULES):
        assert f"| `{name}` |" in text, name


def test_the_code_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    learn, recall = page.blocks(page.PAGE.parents[1] / "README.md")
    page.run(learn)
    accuracies = [float(x) for x in re.findall(r"0\.\d+", capsys.readouterr().out)]
    assert len(accuracies) == 3  # one a seed
    assert min(accuracies) > 0.4
    found = page.run(recall)["found"]
    whole, *_ = capsys.readouterr().out.split()
    assert float(whole) == 1
    assert (found.energy[:, 1:] <= found.energy[:, :-1]).all()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["index.md", "tuning.md"])
def test_what_code_in_the_docs_imports_is_there(name: str) -> None:
    found = [
        (node.module, alias.name)
        for code in page.blocks(page.PAGE.parent / name)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("engramma")
        for alias in node.names
    ]
    assert found
    for module, thing in found:
        assert hasattr(importlib.import_module(str(module)), thing) or importlib.util.find_spec(
            f"{module}.{thing}"
        ), f"{name} imports {thing} from {module}"


def test_the_class_is_about_twenty_lines() -> None:
    lines = [line for line in page.blocks()[0].split("class Frozen")[1].splitlines() if line.strip()]
    assert len(lines) <= 25


def test_every_method_has_its_half_page() -> None:
    text = (page.PAGE.parent / "methods.md").read_text()
    for name, method in METHODS.items():
        assert f"`{name}`" in text
        for setting in (field.name for field in dataclasses.fields(method)):
            assert f"`{setting}`" in text, f"docs/methods.md does not speak of {name}'s {setting}"


def test_the_defaults_on_the_page_are_the_methods_own() -> None:
    pages = re.split(r"^## ", (page.PAGE.parent / "methods.md").read_text(), flags=re.M)
    for name, method in METHODS.items():
        (text,) = [part for part in pages if part.partition("\n")[0].endswith(f"`{name}`")]
        told = {}
        for names, values in re.findall(r"^\| (`.*?`) \| (.*?) \|", text, flags=re.M):
            settings, defaults = re.findall(r"`(\w+)`", names), values.split(", ")
            told |= dict(zip(settings, defaults * (len(settings) // len(defaults)), strict=True))
        plain = {f.name: f"{f.default:g}" if isinstance(f.default, float) else str(f.default).lower()
                 for f in dataclasses.fields(method)}  # fmt: skip
        if name == "si":
            assert plain.pop("merge") == "online"  # it has no other
        assert told == plain, name


HOME, SOURCES = page.PAGE.parents[1], Path(en.__file__).parent
DESIGN = (page.PAGE.parent / "design.md").read_text()
WALKS = [
    re.findall(r"^\d+\. `([^`]+)`, `([^`]+)`: ", walk, flags=re.M)
    for walk in DESIGN.split("## A stranger's walk\n")[1].split("\n## ")[0].split("\n\n**")[1:]
]


def defined(file: Path, name: str) -> bool:
    """Whether a file has a function or class of that name, also one within a class."""
    body = ast.parse(file.read_text()).body
    for part in name.split("."):
        plain = {target.id: node.value for node in body if isinstance(node, ast.Assign)
                 for target in node.targets if isinstance(target, ast.Name)}  # fmt: skip
        made = {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        if part not in made:
            return isinstance(plain.get(part), ast.Call)  # what another function has made
        body = made[part].body
    return True


def test_there_are_two_walks_of_at_most_eight_hops() -> None:
    assert [2 < len(walk) <= 8 for walk in WALKS] == [True, True]
    assert len(re.findall(r"^\d+\. `", DESIGN, flags=re.M)) == sum(map(len, WALKS))  # none was overlooked


@pytest.mark.parametrize(("file", "name"), [hop for walk in WALKS for hop in walk])
def test_every_hop_of_a_walk_is_there_and_is_used_on_the_way(file: str, name: str) -> None:
    assert defined(SOURCES / file, name), f"{file} does not define {name}"
    way = {SOURCES / hop for walk in WALKS for hop, _ in walk} | {SOURCES / "__main__.py"}
    parts = (node for path in way for node in ast.walk(ast.parse(path.read_text())))
    used = {getattr(node, "attr", getattr(node, "id", None)) for node in parts
            if isinstance(node, ast.Attribute | ast.Name)}  # fmt: skip
    assert name.rpartition(".")[2] in used, f"nothing on the way uses {name}"


def test_every_room_has_its_line() -> None:
    table = DESIGN.split("| room | what is in it |\n")[1].split("\n\n")[0]
    told = re.findall(r"^\| `(\w+)` \|", table, flags=re.M)
    for row in ROOMS:  # those of one storey in any order
        assert set(told[: len(row)]) == row
        told = told[len(row) :]
    assert not told


PRESENT = ["CONTRIBUTING.md", "README.md", "mkdocs.yml"]  # pages on what is there now, not on what once was
PRESENT += [f"docs/{p.name}" for p in page.PAGE.parent.glob("*.md") if p.name != "log.md"]


@pytest.mark.parametrize("name", PRESENT)
def test_what_a_page_names_is_there(name: str) -> None:
    text = (HOME / name).read_text()
    places = HOME, SOURCES, page.PAGE.parent
    for path in re.findall(r"`((?:\w[\w.-]*/)+[\w.-]+\.(?:py|toml|md|csv|tar\.gz))`", text):
        assert any((place / path).exists() for place in places), f"{name} names {path}"
    for path in re.findall(r"`(\w+\.py)`", text):
        assert (SOURCES / path).exists() or path in ("freeze.py", *OWN.values()), f"{name} names {path}"
    for thing in re.findall(r"\bengramma(?:\.[A-Za-z]\w*)+", text):
        assert pkgutil.resolve_name(thing), f"{name} names {thing}"
    for command in re.findall(r"python -m (benchmarks\S*(?: [a-z]+)?)", text):
        known = [f"benchmarks {path.stem}" for path in (HOME / "benchmarks").glob("[a-z]*.py")]
        assert command.rstrip("`") in known, f"{name} names python -m {command}"


def test_the_tree_of_the_readme_is_the_tree() -> None:
    block = (HOME / "README.md").read_text().split("## What is where\n")[1].split("```")[1]
    lines = [line for line in block.splitlines() if line.startswith("  ")]
    told = [part.rstrip("/") for line in lines for part in line.strip().split("  ")[0].split()]
    assert {part.removesuffix(".py") for part in told} == set.union(*ROOMS)
    assert [part for part in told if not (SOURCES / part).exists()] == []
    for folder, *files in (re.findall(r"\w+(?:/|\.py)", line) for line in lines):
        if folder.endswith("/"):
            assert [file for file in files if not (SOURCES / folder / file).exists()] == []
    for line in block.splitlines():
        if not line.startswith((" ", "src")):
            assert [part for part in line.split("  ")[0].split() if not (HOME / part).exists()] == []


def test_the_front_page_has_the_table_of_the_readme() -> None:
    text = (HOME / "README.md").read_text()
    table = text[text.index("| | bytes kept") :].partition("\n\n")[0]
    assert table.count("\n") > 5
    assert table.replace("(docs/", "(") in (HOME / "docs" / "index.md").read_text()


def test_every_page_stands_in_the_navigation() -> None:
    nav = (HOME / "mkdocs.yml").read_text().split("\nnav:")[1]
    pages = {str(p.relative_to(HOME / "docs")) for p in (HOME / "docs").rglob("*.md")}
    pages |= {f"notebooks/{p.stem}.md" for p in (HOME / "notebooks").glob("*.ipynb")}
    assert pages == set(re.findall(r"[\w/-]+\.md", nav))
