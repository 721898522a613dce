"""What a release says of itself is the same everywhere. `make release-check` builds and tries it."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import release

HOME = Path(__file__).parents[1]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]


def cited(key: str) -> str:
    found = re.search(rf"^{key}: (.*)$", (HOME / "CITATION.cff").read_text(), flags=re.M)
    assert found, key
    return found[1].strip('"')


def test_every_place_has_the_same_version() -> None:
    version = PROJECT["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert cited("version") == version
    first = re.search(r"^## (\S+)", (HOME / "CHANGELOG.md").read_text(), flags=re.M)
    assert first is not None
    assert first[1] == version
    tree = ast.parse((HOME / "src/engramma/__init__.py").read_text())
    written = [
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and ast.unparse(node.targets[0]) == "__version__"
    ]
    assert written == [version]  # of a checkout that is not installed
    assert set(re.findall(r"engramma:(\d+\.\d+\.\d+)", (HOME / "docs/scale.md").read_text())) == {version}


def test_the_licence_is_one() -> None:
    assert (HOME / "LICENSE").read_text().startswith(f"{PROJECT['license']} License")
    assert cited("license") == PROJECT["license"]
    assert PROJECT["license-files"] == ["LICENSE"]
    assert f"{PROJECT['license']} licence" in (HOME / "README.md").read_text()


def test_it_is_typed_and_says_so() -> None:
    assert (HOME / "src/engramma/py.typed").read_text() == ""
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_the_check_of_a_release_looks_for_what_is_there() -> None:
    assert [part for part in release.PARTS if not (HOME / "src" / part).is_file()] == []
    assert PROJECT["version"] == release.VERSION
