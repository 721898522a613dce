"""The command line. What takes long to import is imported by the command that needs it."""

from __future__ import annotations

import codecs
import errno
import io
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from engramma.checks import visible
from engramma.cli import (
    bench,
    compare,
    data,
    info,
    interrupt,
    report,
    reproduce,
    runs,
    show,
    tables,
    train,
    trial,
    tune,
)

LONGEST = 2000  # characters of what is said of an input that is wrong


class OneLine(TyperGroup):
    """What is wrong with the input is said in one line, with exit status 2; the rest is a bug, and shows."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with interrupt.answered(), show.warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            interrupt.say()
            raise typer.Exit(interrupt.STOPPED) from None
        except (ValueError, OSError, MemoryError) as error:
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise  # the reader of our output has gone: nobody to tell
            print(f"engramma: {one_line(error)}", file=sys.stderr)
            raise typer.Exit(2) from None
        except RuntimeError as error:
            if "allocate memory" not in str(error):  # as PyTorch says it on a CPU
                raise
            print(
                "engramma: the memory of this machine does not suffice: fewer seeds, items or memories",
                file=sys.stderr,
            )
            raise typer.Exit(2) from None


def one_line(error: BaseException) -> str:
    from pydantic import ValidationError

    from engramma.checks import explain

    text = explain(error) if isinstance(error, ValidationError) else str(error)
    if isinstance(error, OSError) and error.errno and error.strerror:
        # Python puts "[Errno 28]" before; the message itself is in strerror, the path in filename.
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    line = visible(" ".join(text.split())) or type(error).__name__
    if len(line) > LONGEST:  # what was given is said again, and may be of any length
        half = LONGEST // 2
        return f"{line[:half]} ... {line[-half:]}"
    return line


app = typer.Typer(
    cls=OneLine,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from engramma import __version__

        print(f"engramma {__version__}")
        raise typer.Exit


@app.callback()
def engramma(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Sequential learning in the Dense Associative Memory: many networks at once.

    A network learns tasks one after another; a method keeps it from forgetting
    the earlier ones. [bold]run[/bold] trains one setting over several seeds and strengths;
    [bold]reproduce[/bold] runs a table or a figure of the paper, at one of three scales.
    Every run is kept as a record in a store (the folder runs, or --store), is
    found again by its description, and is never run twice.

    Start here:

    [cyan]engramma demo[/cyan]

    [cyan]engramma run --data digits --epochs 100 --method ewc --strength 100[/cyan]

    [cyan]engramma reproduce table2 --scale small --dry-run[/cyan]
    """


app.command()(train.run)
app.command()(reproduce.reproduce)
app.command()(reproduce.demo)
tables.register(app)
app.command()(compare.compare)
app.command()(report.report)
app.command()(tune.tune)
app.command("try")(trial.try_)
app.command()(train.fork)
app.add_typer(runs.app, name="runs")
app.add_typer(data.app, name="data")
app.command()(bench.bench)
app.command()(info.info)


SPELLED = str.maketrans({
    "±": "+-", "−": "-", "—": "-", "×": "x", "·": "*", "≤": "<=", "√": "sqrt", "λ": "lambda", "₁": "1",
    "₂": "2", "²": "^2", "✓": "v", "✗": "x", "†": "*",
})  # fmt: skip


def _spelled(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    with suppress(UnicodeEncodeError):  # of a file's name that is not text: its bytes, as they are
        return lost.encode("ascii", "surrogateescape"), error.end
    return "".join(c if c.isascii() else "?" for c in lost.translate(SPELLED)), error.end


def spelled_out() -> None:
    """What a terminal's encoding does not have is written in ASCII."""
    codecs.register_error("spelled", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="spelled")


def main() -> None:
    spelled_out()
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun: while it is put together
        interrupt.say()
        interrupt.leave()
    except SystemExit as end:
        if end.code == interrupt.STOPPED:
            interrupt.leave()  # at once: threads that still compute would be waited for
        raise
