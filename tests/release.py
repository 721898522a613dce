"""What is released, tried as a stranger would: `make release-check`.

Builds the wheel and the source distribution, and the wheel once more from the source distribution alone;
installs it into a fresh environment and uses it in an empty folder, without the checkout. What engramma needs
is not fetched again, PyTorch being gigabytes: the fresh environment finds it in the one that runs this.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

HOME = Path(__file__).parents[1]
VERSION = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["version"]
PARTS = [  # of what is no Python file, one of each kind
    "engramma/py.typed",
    "engramma/paper/paper.json",
    "engramma/show/figures/engramma.mplstyle",
    "engramma/show/report/page/report.html",
    "engramma/show/report/page/report.css",
    "engramma/show/report/page/report.js",
    *(f"engramma/studies/{path.name}" for path in (HOME / "src/engramma/studies").glob("*.toml")),
]
INSIDE = f"""
import engramma, importlib.metadata, pathlib, sys
home = pathlib.Path(engramma.__file__)
assert home.is_relative_to(sys.prefix), home
assert engramma.__version__ == "{VERSION}" == importlib.metadata.version("engramma"), engramma.__version__
assert (home.parent / "py.typed").is_file()
for name in engramma.__all__:
    getattr(engramma, name)
run = engramma.Experiment(data="digits", items=100, tasks=2, memories=8, epochs=5)
assert len(engramma.run(run.grid(seed=range(2)), processes=1)) == 2
"""
RUN = "run --data digits --items 300 --tasks 3 --memories 32 --epochs 60 --method allocation --keep-memories"
COMMANDS = {  # {what is typed: what must be said}
    "--version": f"engramma {VERSION}",
    "reproduce --list": "table2",
    "data check digits": "threshold",
    f"{RUN} --device cpu": "3 runs trained",
    "runs list": "3 runs",
    "table scores": "allocation",
    "figure memories": "memories.png",
    "report --out report.html": "Report of 3 runs",
    "info": VERSION,
}


def told(*command: str | Path, folder: Path) -> str:
    """What a command says, which must succeed. No path or setting of ours is handed on."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ENGRAMMA", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=clean | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def built(source: Path, kind: str, out: Path) -> Path:
    told(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out, folder=source)
    (made,) = out.glob(f"engramma-{VERSION}*.{'whl' if kind == 'wheel' else 'tar.gz'}")
    return made


def files(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as held:
        return {info.filename: info.CRC for info in held.infolist()}


def fresh(place: Path, wheel: Path) -> Path:
    """An environment with the wheel in it, which finds what that needs in ours. Its folder of programs."""
    venv.create(place, with_pip=False)
    programs = place / ("Scripts" if os.name == "nt" else "bin")
    own = told(
        programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=place
    )
    # Of these folders nothing is run: our own engramma, installed as a link to the checkout, is not seen.
    (Path(own.strip()) / "needs.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    pip = (sys.executable, "-m", "pip", "--python", programs / "python")
    told(*pip, "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", wheel, folder=place)
    return programs


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="engramma-release-") as name:
        folder = Path(name)
        wheel, source = (built(HOME, kind, folder / "dist") for kind in ("wheel", "sdist"))
        there = files(wheel)
        lacking = [part for part in PARTS if part not in there]
        foreign = [
            part for part in there if not part.startswith(("engramma/", f"engramma-{VERSION}.dist-info/"))
        ]
        assert not lacking, f"the wheel lacks {lacking}"
        assert not foreign, f"the wheel has {foreign}"
        assert f"engramma-{VERSION}.dist-info/licenses/LICENSE" in there, "the wheel has no licence"
        with tarfile.open(source) as held:
            held.extractall(folder, filter="data")
        again = files(built(folder / f"engramma-{VERSION}", "wheel", folder / "again"))
        assert again == there, (
            f"the source distribution makes another wheel: {set(again.items()) ^ set(there.items())}"
        )
        sizes = ", ".join(f"{path.name} {path.stat().st_size / 2**20:.1f} MiB" for path in (wheel, source))
        print(
            f"built      {sizes}; {len(there)} files in the wheel, and the same from the source distribution"
        )
        programs, empty = fresh(folder / "environment", wheel), folder / "empty"
        empty.mkdir()
        told(programs / "python", "-c", INSIDE, folder=empty)
        print(f"imported   all of engramma's {VERSION}, typed, from the fresh environment")
        for line, says in COMMANDS.items():
            said = told(programs / "engramma", *line.split(), folder=empty)
            assert says.lower() in said.lower(), f"engramma {line} did not say {says!r}:\n{said}"
            print(f"ran        engramma {line}")
        assert (empty / "report.html").stat().st_size > 100_000
        assert (empty / "figures" / "memories.pdf").is_file()
        print(f"engramma {VERSION} can be released: `python -m hatchling build` writes both to dist/")


if __name__ == "__main__":
    main()
