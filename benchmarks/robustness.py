"""Which methods break when the number of classes in the query, or of queries, is not what they were tuned for.

    python benchmarks/robustness.py FEATURES --methods '*,!alpha-am' --shots 5 [--support-split train] -o grid.md

Each method is tuned (or learned) once, on validation tasks with five effective classes and 75 queries, and then meets
every cell of the grid on the same tasks. A cell that the images are too few for is left empty.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import unem
from grid_search import pools
from unem.evaluation import Evaluation, Validation, interval95
from unem.methods import Method

EFFECTIVE = (1, 2, 5, 10, 20, "all")
QUERIES = (1, 10, 75, 500)


def main() -> None:
    arguments = _arguments()
    features = unem.FeatureSet.load(arguments.features)
    test, validation = (pools(features, arguments.support_split, name) for name in ("test", "val"))
    tuning = Validation(*validation, tasks=arguments.tune, cache=arguments.cache)
    protocol = unem.Protocol(shots=arguments.shots)
    results: dict[str, dict[tuple[object, int], Evaluation]] = {}
    for info in unem.list_methods(arguments.methods):
        name = info.name
        if info.inputs != "features" and features.text_features is None:
            continue
        try:
            method = tuning.ready(name, protocol, test[0].num_classes, arguments.device).method
        except unem.InputError as reason:
            print("left out:", reason, flush=True)
            continue
        results[name] = _row(method, test, arguments)
        print(name, {f"{k}/{q}": round(e.accuracy, 1) for (k, q), e in results[name].items()}, flush=True)
    text = _markdown(results)
    print(text)
    if arguments.output:
        Path(arguments.output).write_text(text, encoding="utf-8")


def _row(method: Method, test: tuple, arguments: argparse.Namespace) -> dict[tuple[object, int], Evaluation]:
    row = {}
    for effective in arguments.effective:
        for queries in QUERIES:
            protocol = unem.Protocol(shots=arguments.shots, effective_classes=effective, queries=queries)
            tasks = arguments.tasks * (10 if queries == 1 else 1)  # one query a task says little
            try:
                row[effective, queries] = unem.evaluate(
                    method, test[0], protocol, query=test[1], tasks=tasks, seed=7, device=arguments.device
                )
            except unem.InputError:
                continue
    return row


def _markdown(results: dict[str, dict[tuple[object, int], Evaluation]]) -> str:
    """The best of each cell in bold; † where it is worse than prototypes on the same tasks beyond the 95 % interval."""
    cells = [(k, q) for k in EFFECTIVE for q in QUERIES if any((k, q) in row for row in results.values())]
    heading = "| K_eff, \\|Q\\| | " + " | ".join(f"{k}, {q}" for k, q in cells) + " |"
    lines = [heading, "|---|" + "---|" * len(cells)]
    best = {c: max(row[c].accuracy for row in results.values() if c in row) for c in cells}
    plain = results.get("prototypes", {})
    for name, row in results.items():
        texts = []
        for cell in cells:
            text = f"{row[cell].accuracy:.1f}" if cell in row else ""
            if cell in row and row[cell].accuracy == best[cell]:
                text = f"**{text}**"
            texts.append(text + ("†" if _is_worse(row.get(cell), plain.get(cell)) else ""))
        lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(lines) + "\n"


def _is_worse(result: Evaluation | None, plain: Evaluation | None) -> bool:
    if result is None or plain is None:
        return False
    difference = result.per_task - plain.per_task
    return bool(difference.mean() < -interval95(difference))


def _numbers(text: str) -> tuple[object, ...]:
    return tuple(word if word == "all" else int(word) for word in text.split(","))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("--methods", default="*,!alpha-am")
    parser.add_argument("--shots", type=int, default=5)
    parser.add_argument("--support-split")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--tune", type=int, default=100, help="validation tasks for each point of a grid")
    parser.add_argument("--effective", type=_numbers, default=EFFECTIVE, help="some of the columns, such as 5,20,all")
    parser.add_argument("--cache")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
