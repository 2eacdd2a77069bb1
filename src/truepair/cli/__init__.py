"""The command line: one small file per verb."""

import importlib
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from truepair import __version__
from truepair.errors import TruepairError

# The verb's module has a function of the same name; its signature and docstring are the verb's options and help.
# Modules are imported only when their verb is called, so that help and small verbs start at once.
VERBS = {
    "demo": "Everything on bundled pictures with wrong captions, in a few minutes",
    "embed": "Turn pictures and captions into a data folder that every other verb reads",
    "inspect": "What is in a data set, and what is wrong with it",
    "train": "Train a matcher on pairs that cannot be trusted, with any of the methods",
    "evaluate": "Recalls of a run's networks, and how well it tells wrong pairs apart",
    "audit": "Which pairs are wrong, how many, and what fits them better: table, report, clean data",
    "review": "Decide about an audit's suspects, one key each",
    "matchers": "The matchers, and what each of them needs",
    "methods": "The methods, with their papers' values",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb. Errors a person can mend are printed without a traceback and give exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] in (["--version"], ["-V"]):
        print(f"truepair {__version__}")
        return 0
    if not words or words[0] in ("--help", "-h", "help"):
        _print_help()
        return 0
    verb = words[0]
    stderr = Console(stderr=True, highlight=False, soft_wrap=True)
    if verb not in VERBS:
        stderr.print(f"truepair has no verb '{verb}'. It has: {', '.join(VERBS)}.", markup=False)
        return 2
    import tyro

    module = importlib.import_module(f"truepair.cli.{verb}")
    run = getattr(module, verb)
    try:
        if hasattr(module, "options_for"):
            # Which options there are depends on the words themselves (the method's, the matcher's).
            run(tyro.cli(module.options_for(words[1:]), prog=f"truepair {verb}", args=words[1:]))
        else:
            tyro.cli(run, prog=f"truepair {verb}", args=words[1:])
    except TruepairError as error:
        stderr.print(str(error), markup=False, style="red")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (head, a pager) has gone: nothing is wrong.
        sys.stderr.close()
        return 0
    return 0


def _print_help() -> None:
    console = Console(highlight=False)
    console.print(
        "[bold]truepair[/] trains image-text retrieval on pairs you cannot trust, and finds the wrong ones.\n"
    )
    table = Table(box=None, show_header=False, padding=(0, 2))
    for verb, purpose in VERBS.items():
        table.add_row(f"[bold cyan]{verb}[/]", purpose)
    console.print(table)
    console.print(
        "\n[bold]truepair VERB --help[/] explains a verb; [bold]truepair --version[/] prints the version."
    )
