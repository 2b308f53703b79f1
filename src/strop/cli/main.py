"""The command line: one verb a file, each parses, calls `strop.app` and prints. Nothing heavy is imported."""

import signal
import sys

import typer
from typer.main import get_command

from strop.cli import (
    attribute,
    demo,
    doctor,
    grade,
    guard,
    init,
    judge,
    predict,
    report,
    select,
    serve,
    train,
    warmstart,
)
from strop.errors import StropError

INTERRUPTED = 128 + signal.SIGINT

cli = typer.Typer(
    name="strop",
    help="Sharpens LLM agents without a reward function, and says how far its graders may be believed.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (demo, init, warmstart, train, serve, judge, grade, select, predict, attribute, report, doctor):
    cli.command(verb.__name__.rpartition(".")[2])(verb.run)
cli.add_typer(guard.cli, name="guard")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code. 0 done, 1 the answer is bad, 2 wrong input, 3 nobody answers.

    A StropError is one line on standard error. Ctrl-C is 130. Anything else is a bug: a traceback.
    """
    try:
        get_command(cli).main(args=arguments, prog_name="strop")
    except StropError as error:
        print(f"strop: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        return _interrupted() if code == INTERRUPTED else code
    return 0


def _interrupted() -> int:
    print("strop: interrupted; what was finished is kept", file=sys.stderr)
    return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
