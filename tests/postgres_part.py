"""A PostgreSQL server for tests: thrown away afterwards, on a loopback port of its own, with a password."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "hush-7f3a"  # of this server alone, and looked for in everything that is written
_LINES = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
max_connections = 40
shared_buffers = 16MB
"""


class Server:
    def __init__(self, folder: Path, programs: Path, as_user: list[str]) -> None:
        self.folder, self.programs, self.as_user = folder, programs, as_user
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://127.0.0.1:{self.port}/postgres"
        self.environment = {"PGUSER": "seeker", "PGPASSWORD": PASSWORD}

    def _do(self, program: str, *arguments: str) -> None:
        line = [*self.as_user, str(self.programs / program), "-D", str(self.folder / "data"), *arguments]
        # Not captured through pipes: the server would inherit them and keep them open.
        with open(self.folder / "output", "ab") as out:
            subprocess.run(line, check=True, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=60)

    def make(self) -> None:
        (self.folder / "secret").write_text(PASSWORD)
        (self.folder / "secret").chmod(0o644)
        self._do(
            "initdb", "-U", "seeker", "-A", "scram-sha-256", "--pwfile", str(self.folder / "secret"), "-N"
        )
        with open(self.folder / "data" / "postgresql.conf", "a") as file:
            file.write(_LINES)

    def start(self) -> None:
        self._do("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", f"-p {self.port}", "start")

    def stop(self) -> None:
        self._do("pg_ctl", "-w", "-m", "immediate", "stop")


def lacking() -> str:
    """Why there can be no server here; empty where there can."""
    if sys.platform == "win32":
        return "PostgreSQL is tested on POSIX systems"
    if _programs() is None:
        return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and not (_user() and shutil.which("setpriv")):
        return "PostgreSQL does not run as root, and there is no user postgres or no setpriv to run it as"
    return ""


def _programs() -> Path | None:
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda p: int(p.parent.name))


def _user() -> tuple[int, int] | None:
    import pwd

    try:
        found = pwd.getpwnam("postgres")
    except KeyError:
        return None
    return found.pw_uid, found.pw_gid


@contextmanager
def server() -> Iterator[Server]:
    programs, as_user = _programs(), []
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="engramma-postgres-"))
    if os.geteuid() == 0 and (who := _user()):
        as_user = ["setpriv", f"--reuid={who[0]}", f"--regid={who[1]}", "--clear-groups", "--"]
        os.chown(folder, *who)
    made = Server(folder, programs, as_user)
    try:
        made.make()
        made.start()
        yield made
    finally:
        subprocess.run(
            [*as_user, str(programs / "pg_ctl"), "-D", str(folder / "data"), "-m", "immediate", "stop"],
            check=False,
            capture_output=True,
        )
        shutil.rmtree(folder, ignore_errors=True)
