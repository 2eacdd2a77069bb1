"""Run by test_resume.py in a process of its own: trains in forked processes that kill themselves at chosen moments.

Usage: killed.py TASK.json, which names the data, two folders, the config and the moments. One folder gets an
uninterrupted run; in the other one a process trains until it is killed at the first moment, the next one resumes
until it is killed at the second moment, and so on; the last one is left alone. Prints every process's end.
"""

import json
import os
import signal
import sys
from pathlib import Path

import torch

from truepair.methods.registry import find_method
from truepair.training import checkpoints, fit, loop, run
from truepair.training.schedule import Schedule


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def kill_before(holder, name, chosen):
    """Kill this process when the function is called with arguments that are chosen."""
    original = getattr(holder, name)

    def patched(*arguments, **options):
        if chosen(*arguments, **options):
            die()
        return original(*arguments, **options)

    setattr(holder, name, patched)


def at_step(epoch, network, step):
    """Before this step of a network is taken."""

    def chosen(self, number, stream, pairs, *batch):
        return (batch[-1].epoch, number, batch[-1].step) == (epoch, network, step)

    kill_before(loop.Trainer, "_step", chosen)


def in_sweep(epoch, batches):
    """While all pairs are looked over, after this many batches of the last network."""
    whole = loop.Trainer._looked_over

    def looked_over(self, network, plan):
        for place, found in enumerate(whole(self, network, plan)):
            if network is self.networks[-1] and self.position.epoch == epoch and place == batches:
                die()
            yield found

    loop.Trainer._looked_over = looked_over


def after_metrics(epoch):
    """When the epoch's line stands in metrics.jsonl and no checkpoint knows of it."""
    original = run.Run.append_metrics

    def patched(self, entry):
        original(self, entry)
        if entry["epoch"] == epoch:
            die()

    run.Run.append_metrics = patched


def within_a_line(epoch):
    """When half of the epoch's line is written."""
    original = run.Run.append_metrics

    def patched(self, entry):
        if entry["epoch"] != epoch:
            return original(self, entry)
        line = json.dumps(entry)
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(line[: len(line) // 2])
            file.flush()
            die()

    run.Run.append_metrics = patched


def within_a_checkpoint(which, epochs):
    """When half of the bytes of a checkpoint after so many epochs are written."""
    wanted = []
    original_write, original_open = checkpoints.write, checkpoints.replaced_when_written

    def write(path, checkpoint):
        wanted[:] = [path.stem == which and checkpoint.facts["position"]["epoch"] == epochs]
        original_write(path, checkpoint)

    def opened(path):
        manager = original_open(path)
        if wanted == [True]:
            enter = manager.__enter__

            def entered():
                file = enter()
                whole = file.write

                def half(data):
                    whole(data[: len(data) // 2])
                    file.flush()
                    die()

                file_like = type("Half", (), {"write": staticmethod(half)})
                return file_like()

            return type("Manager", (), {"__enter__": lambda _: entered(), "__exit__": lambda *_: None})()
        return manager

    checkpoints.write, checkpoints.replaced_when_written = write, opened


def before_ledger():
    """When everything is trained and the ledger is still to be written."""
    kill_before(run.Run, "write_ledger", lambda *_: True)


def before_config():
    """When the folder is there and the run's config is not."""
    kill_before(fit, "write_text", lambda path, text: path.name == "config.json")


MOMENTS = {
    function.__name__: function
    for function in (
        at_step,
        in_sweep,
        after_metrics,
        within_a_line,
        within_a_checkpoint,
        before_ledger,
        before_config,
    )
}


def attempt(task, folder, moment):
    """One process: start or resume, until the moment or the end."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        if moment is not None:
            name, *arguments = moment
            MOMENTS[name](*arguments)
        if (folder / "config.json").exists():
            fit.resume(folder, quiet=True)
        else:
            method = find_method(task["method"])(**task.get("values", {}))
            schedule = Schedule(**{**task["schedule"], "pieces": tuple(task["schedule"]["pieces"])})
            fit.fit(task["data"], method, out=folder, schedule=schedule, quiet=True, **task["options"])
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def main():
    torch.set_num_threads(1)
    task = json.loads(Path(sys.argv[1]).read_text())
    ends = [attempt(task, Path(task["whole"]), None)]
    ends += [attempt(task, Path(task["killed"]), moment) for moment in [*task["moments"], None]]
    print(json.dumps(ends))


if __name__ == "__main__":
    main()
