from __future__ import annotations

import ast
import dataclasses
import importlib.util
import re
import sys
from pathlib import Path

import page
import pytest
import torch

import engramma as en
from engramma.checks import module_name
from engramma.methods import METHODS, Method


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


OWN = {"adding-an-interaction": "exponential.py", "adding-a-stream": "codes.py"}


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


def test_the_code_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = page.blocks(page.PAGE.parents[1] / "README.md")
    page.run(code)
    accuracies = [float(x) for x in re.findall(r"0\.\d+", capsys.readouterr().out)]
    assert len(accuracies) == 3  # one a seed
    assert min(accuracies) > 0.4


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
