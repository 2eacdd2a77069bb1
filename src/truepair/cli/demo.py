"""truepair demo."""

import time
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

    from truepair.demo import CONTESTANTS, NOISE, run_demo

    began = time.perf_counter()
    if not json:
        Console(stderr=True, highlight=False).print(
            f"Wrong captions for {NOISE:.0%} of the bundled pictures, an audit, three models. About three minutes.\n"
        )
    result = run_demo(out, quiet=json)
    summary = result.audit.summary
    truth = summary["truth"]
    facts = {
        "estimated_share": summary["estimated_share"],
        "interval": summary["interval"],
        "true_share": truth["share"],
        "flagged": summary["flagged"],
        "precision": truth["precision"],
        "recall": truth["recall"],
        "rsum": result.recalls,
        "report": str(result.report),
        "seconds": round(time.perf_counter() - began, 1),
    }
    models = table(["model", "", "test rSum"])
    models.columns[1].justify = "left"
    for model in CONTESTANTS:
        models.add_row(model.name, model.says, f"{result.recalls[model.name]:.1f}")
    low, high = summary["interval"]
    shown = Group(
        Text(
            f"The audit says {summary['estimated_share']:.1%} of the pairs are wrong ({low:.1%} to {high:.1%}); "
            f"truly it is {truth['share']:.1%}.\nIt flagged {summary['flagged']:,} pairs: {truth['precision']:.1%} "
            f"of them are wrong, and they are {truth['recall']:.1%} of all wrong ones.\n"
        ),
        models,
        Text(
            f"\nLook at {result.report} in a browser: the suspects with their pictures, curves, searches.\n\n"
            "Now your own data:\n"
            "  truepair embed PICTURES --out DATA      a folder of pictures with a table of captions\n"
            "  truepair inspect DATA                   what is in it\n"
            "  truepair audit DATA --out AUDIT         which pairs are wrong, and a report\n"
            "  truepair review AUDIT                   look at the suspects and decide\n"
            "  truepair train DATA --prior witness --method plain --out runs/first"
        ),
    )
    emit(facts, as_json=json, shown=None if json else shown)
