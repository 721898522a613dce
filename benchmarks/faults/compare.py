"""What a folder holds, in words that two runs of the same command must agree on bit for bit."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

from safetensors import safe_open

CLOCK = ("seconds", "seconds_by_task", "finished")  # facts that no two runs share
WHERE = ("pack", "replicas")  # with which others a run was trained: several processes share them out anew
Found = dict[str, Any]  # path or trial: what it says


def held(folder: Path, several: bool = False) -> Found:
    """{path: what is there}. `several`: processes, which may share the work out as it comes."""
    found: Found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"a link to {path.readlink()}"
        elif path.is_dir():
            found[name + "/"] = "a folder"
        elif path.name == "SHA256SUMS":  # of files that tell the time
            found[name] = sums(path)
        elif path.name in ("record.json", "checkpoint.json"):
            found[name] = head(path, several)
        elif path.suffix == ".safetensors":
            found[name] = arrays(path)
        elif path.suffix == ".db":
            found |= {f"{name}: {key}": value for key, value in trials(path, several).items()}
        elif path.name.endswith(".tgz"):
            found[name] = digest(path.read_bytes())
            with tarfile.open(path) as tar:
                names = tar.getnames()
            found[f"{name}: members"] = "each once" if len(set(names)) == len(names) else "doubled"
        else:
            found[name] = digest(path.read_bytes())
    return found


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def sums(path: Path) -> Any:
    """The files that are listed, and whether they are as it says."""
    wrong = []
    lines = [line.split("  ", 1) for line in path.read_text().splitlines()]
    for expected, name in lines:
        there = path.parent / name
        if not there.is_file() or hashlib.sha256(there.read_bytes()).hexdigest() != expected:
            wrong.append(name)
    return sorted(name for _, name in lines), wrong


def head(path: Path, several: bool) -> Any:
    told = json.loads(path.read_text())
    left = CLOCK + (WHERE if several else ())
    told["facts"] = {k: v for k, v in told["facts"].items() if k not in left}
    return told  # scores and curves are lists of names there: their order counts


def arrays(path: Path) -> Any:
    with safe_open(path, "np") as file:
        each = {name: file.get_tensor(name) for name in sorted(file.keys())}
    return {k: (str(v.dtype), v.shape, digest(v.tobytes())) for k, v in each.items()}


def trials(path: Path, several: bool) -> Found:
    """What the searches of a database came to."""
    found: Found = {}
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
        ask = lambda what, *given: base.execute(what, given).fetchall()  # noqa: E731
        for study, name in ask("select study_id, study_name from studies"):
            found[f"search {name}"] = {
                "about": sorted(
                    ask("select key, value_json from study_user_attributes where study_id = ?", study)
                ),
                "way": ask("select direction from study_directions where study_id = ?", study),
            }
            rows = ask("select trial_id, number, state from trials where study_id = ? order by number", study)
            numbers = [number for _, number, _ in rows]
            found[f"search {name}, numbers"] = "each once" if len(set(numbers)) == len(numbers) else "doubled"
            states = [state for *_, state in rows]
            if several:  # what is asked next, and so what is pruned, depends on what has been told by then
                done, pruned = states.count("COMPLETE"), states.count("PRUNED")
                found[f"search {name}, ends"] = (done, "unfinished", len(states) - done - pruned)
                continue
            for trial, number, state in rows:
                found[f"trial {number} of {name}"] = (
                    state,
                    ask("select value from trial_values where trial_id = ?", trial),
                    sorted(ask("select param_name, param_value, distribution_json from trial_params "
                               "where trial_id = ?", trial)),
                    sorted(ask("select key, value_json from trial_user_attributes "
                               "where trial_id = ?", trial)),
                )  # fmt: skip
    return found


def faults(wanted: Found, got: Found, another: bool = False) -> dict[str, list[str]]:
    """{kind: what} of everything that is not as in the uninterrupted run. `another`: of a search by several
    processes the trials, and so its records, are others every time; what it leaves behind is not."""
    out: dict[str, list[str]] = {}

    def free(name: str) -> bool:
        mine = re.search(r"runs/[0-9a-f]{20}(/|$)", name) or name.endswith((".toml", ".pdf", ".png"))
        return another and bool(mine)

    def say(kind: str, what: str) -> None:
        out.setdefault(kind, []).append(what)

    for name in sorted(wanted.keys() - got.keys()):
        if not name.endswith("/") and not free(name):
            say("lost", name)
    for name in sorted(got.keys() - wanted.keys()):
        if not free(name):
            say(
                "doubled"
                if ": trial " in name or re.fullmatch(r"(.*/)?runs/[0-9a-f]{20}/", name)
                else "left behind",
                name,
            )
    for name in sorted(wanted.keys() & got.keys()):
        was, now = wanted[name], got[name]
        if now == "doubled":
            say("doubled", name)
        elif now != was and not free(name):
            say("differs", f"{name}: {_difference(was, now)}")
    for name, now in got.items():  # of records that are free to differ, too
        if re.search(r"runs/[0-9a-f]{20}/SHA256SUMS$", name) and now[1]:
            say("lost", f"{name}: {', '.join(now[1])} is not what its checksum says")
    return out


def _difference(was: Any, now: Any) -> str:
    """Which parts, and how they differ."""
    if isinstance(was, dict) and isinstance(now, dict):
        parts = [k for k in sorted({*was, *now}) if was.get(k) != now.get(k)]
        return "; ".join(f"{k} {_difference(was.get(k), now.get(k))}" for k in parts)
    return f"{str(was)[:200]} -> {str(now)[:200]}"
