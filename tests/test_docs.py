from __future__ import annotations

import dataclasses

import page
import torch

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


def test_the_class_is_about_twenty_lines() -> None:
    lines = [line for line in page.blocks()[0].split("class Frozen")[1].splitlines() if line.strip()]
    assert len(lines) <= 25


def test_every_method_has_its_half_page() -> None:
    text = (page.PAGE.parent / "methods.md").read_text()
    for name, method in METHODS.items():
        assert f"`{name}`" in text
        for setting in (field.name for field in dataclasses.fields(method)):
            assert f"`{setting}`" in text, f"docs/methods.md does not speak of {name}'s {setting}"
