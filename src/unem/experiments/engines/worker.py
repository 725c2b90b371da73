"""A worker process of the local engine: jobs come in as lines of JSON, rows go out as lines of JSON."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import traceback
from typing import Any

from unem.errors import InputError
from unem.experiments.cells import job_from_key
from unem.experiments.images import FeatureFolder
from unem.experiments.run import import_method, run_job

__all__ = ["describe_error", "main"]


def describe_error(error: BaseException) -> str:
    """A sentence for what a user can mend, a traceback for what only a developer can."""
    if isinstance(error, InputError):
        return str(error)
    return "".join(traceback.format_exception(error)).strip()


def main() -> None:
    """Serve until the other end closes: the parent decides when to stop, also when the terminal interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints must not disturb the answers
    folder = FeatureFolder(sys.argv[1])
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        order = json.loads(jobs.get())
        answers.write(json.dumps(_answer(order, folder)) + "\n")
        answers.flush()


def _listen(jobs: queue.Queue[str]) -> None:
    """When the parent is gone nobody wants the work: stop at once, in the middle of it."""
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)


def _answer(order: dict[str, Any], folder: FeatureFolder) -> dict[str, Any]:
    try:
        job = job_from_key(order["key"])
        import_method(job.method, order["origin"])
        row = run_job(job, folder.pools, order["prepared"], order["device"])
        return {"name": order["name"], "row": row}
    except Exception as error:  # one job must not end the others
        return {"name": order["name"], "error": describe_error(error)}


if __name__ == "__main__":
    main()
