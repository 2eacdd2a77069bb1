"""truepair demo."""

import time
from dataclasses import asdict
from pathlib import Path

from truepair.cli.output import emit, table


def demo(out: Path = Path("truepair-demo"), json: bool = False) -> None:
    """Show everything on bundled pictures: 40 % of them get wrong captions; find them, and train in spite of them.

    Args:
        out: where the audit, the three models and the report go; a demo that was stopped goes on there.
        json: print the results as JSON.
    """
    from rich.console import Console, Group
    from rich.text import Text

    from truepair.demo import CONTESTANTS, FIND_COLUMNS, NOISE, find_rows, run_demo

    began = time.perf_counter()
    if not json:
        Console(stderr=True, highlight=False).print(
            f"Wrong captions for {NOISE:.0%} of the bundled pictures, three models, an audit. About three minutes.\n"
        )
    result = run_demo(out, quiet=json)
    summary = result.audit.summary
    truth = summary["truth"]
    facts = {
        "estimated_share": summary["estimated_share"],
        "interval": summary["interval"],
        "true_share": truth["share"],
        "found": [{"judge": find.judge, **asdict(find.found)} for find in result.finds],
        "rsum": result.recalls,
        "report": str(result.report),
        "seconds": round(time.perf_counter() - began, 1),
    }
    models = table(["model", "", "test rSum"])
    models.columns[1].justify = "left"
    for model in CONTESTANTS:
        models.add_row(model.name, model.says, f"{result.recalls[model.name]:.1f}")
    found = table(list(FIND_COLUMNS))
    for row in find_rows(result.finds):
        found.add_row(*row)
    low, high = summary["interval"]
    shown = Group(
        Text(
            f"The audit says {summary['estimated_share']:.1%} of the pairs are wrong ({low:.1%} to {high:.1%}); "
            f"truly it is {truth['share']:.1%}.\n"
        ),
        found,
        Text("\nRetrieval of new drawings, the sum of six recalls (of 600):\n"),
        models,
        Text(
            f"\nLook at {result.report} in a browser: the suspects with their pictures, curves, searches.\n\n"
            "Now your own data:\n"
            "  truepair embed PICTURES --out DATA      a folder of pictures with a table of captions\n"
            "  truepair inspect DATA                   what is in it\n"
            "  truepair audit DATA --out AUDIT         which pairs are wrong, and a report\n"
            "  truepair review AUDIT                   look at the suspects and decide\n"
            "  truepair review AUDIT --export CLEAN    the data as you decided\n"
            "  truepair train CLEAN --prior witness --method plain --out runs/first"
        ),
    )
    emit(facts, as_json=json, shown=None if json else shown)
