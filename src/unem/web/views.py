"""What a visitor sees, as HTML. Whatever came from outside, names above all, goes through :func:`text`."""

from __future__ import annotations

import base64
import html
import io
import json
from collections import Counter
from collections.abc import Sequence

from unem.errors import InputError
from unem.inference import DOUBTFUL
from unem.web.outcome import Outcome
from unem.web.session import Session
from unem.web.sides import Item, Side
from unem.web.uploads import shown

__all__ = ["changes", "chosen", "colour", "gallery", "layers", "left_out", "sent", "summary", "text"]

PER_PAGE = 60
COLOURS = ("#2a6fb0", "#c8500a", "#117755", "#aa3377", "#8a7300", "#5b4bb5", "#1d7f96", "#b3261e", "#5f6b1f", "#7a4a2b")
MINI = 44  # pixels of the pictures that move from class to class
MOVING = 400  # pictures that may; more would be a crowd
CLASSES_SHOWN = 14
FEW = 6
# The page fills values into templates that know `${…}` and `{{…}}`; what comes from outside must not be one.
TEMPLATE = str.maketrans({"{": "&#123;", "}": "&#125;", "$": "&#36;", "`": "&#96;"})


def text(value: object) -> str:
    """Text that is shown and nothing else.

    Example:
        >>> text("<b>{{x}}</b>")
        '&lt;b&gt;&#123;&#123;x&#125;&#125;&lt;/b&gt;'
    """
    return html.escape(str(value), quote=True).translate(TEMPLATE)


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _count(number: int, what: str, more: str | None = None) -> str:
    return f"{number} {what if number == 1 else more or what + 's'}"


def _picture(item: Item, *, mini: bool = False, alt: str = "") -> str:
    if item.thumbnail is None:
        return f'<span class="u-row" aria-hidden="true">{text(item.name.removeprefix("row "))}</span>'
    content = _mini(item.thumbnail) if mini else item.thumbnail
    return f'<img src="data:image/jpeg;base64,{base64.b64encode(content).decode()}" alt="{text(alt)}" loading="lazy">'


def _mini(content: bytes) -> bytes:
    from PIL import Image

    image = Image.open(io.BytesIO(content))
    image.thumbnail((2 * MINI, 2 * MINI))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=70)
    return file.getvalue()


# -- what was sent -----------------------------------------------------------------------------------------------------


def sent(side: Side, name: str) -> str:
    """How many images of which classes, and what was left out."""
    if not side.items and not side.left_out:
        return ""
    what = _count(len(side.items), "image" if side.table is None or side.items[0].thumbnail else "row")
    if name == "support":
        counts = Counter(label for label in side.labels if label is not None)
        what += f" of {_count(len(counts), 'class', 'classes')}"
        chips = "".join(
            f'<li style="--c:{colour(k)}">{text(shown(label))} <b>{counts[label]}</b></li>'
            for k, label in enumerate(sorted(counts)[:CLASSES_SHOWN])
        )
        more = len(counts) - CLASSES_SHOWN
        chips += f"<li>and {more} more</li>" if more > 0 else ""
        body = f'<ul class="u-chips">{chips}</ul>'
    else:
        faces = "".join(f"<li>{_picture(i, mini=True)}</li>" for i in side.items[:8] if i.thumbnail)
        body = f'<ul class="u-faces">{faces}</ul>' if faces else ""
    return f'<div class="u-sent"><p><strong>{what}</strong></p>{body}{left_out(side.left_out)}</div>'


def left_out(problems: Sequence[tuple[str, str]]) -> str:
    """Files that could not be used, each with its reason."""
    if not problems:
        return ""
    lines = "".join(f"<li><b>{text(shown(n))}</b> {text(reason)}</li>" for n, reason in problems[:FEW])
    more = f"<li>and {len(problems) - FEW} more</li>" if len(problems) > FEW else ""
    return (
        f'<div class="u-left" role="alert"><p>{_count(len(problems), "file")} left out:</p><ul>{lines}{more}</ul></div>'
    )


# -- answers -----------------------------------------------------------------------------------------------------------


def summary(outcome: Outcome) -> str:
    """A line of numbers, and how they came about."""
    doubtful = int((outcome.confidence < DOUBTFUL).sum())
    present = len(set(outcome.labels.tolist()))
    facts = [
        (str(len(outcome)), "images labelled"),
        (f"{present} of {len(outcome.class_names)}", "classes found"),
        (str(doubtful), f"doubtful: less than {100 * DOUBTFUL:.0f} % sure"),
        (str(len(outcome.changed)), f"{'would change' if outcome.one_by_one else 'changed'} by looking together"),
    ]
    right, known = outcome.right(outcome.labels)
    if known:
        other, how = (outcome.together.argmax(1), "together") if outcome.one_by_one else (outcome.alone, "one by one")
        before = outcome.right(other)[0]
        facts.append((f"{100 * right / known:.0f} %", f"right, of {known} known; {100 * before / known:.0f} % {how}"))
    if outcome.corrected:
        facts.append((str(len(outcome.corrected)), "labelled by you"))
    cells = "".join(f"<div><dt>{text(what)}</dt><dd>{text(number)}</dd></div>" for number, what in facts)
    notes = "".join(f"<p>{text(note)}.</p>" for note in outcome.notes)
    how = f"<code>{text(outcome.method)}</code> in {outcome.seconds:.1f} s; {text(outcome.reason)}."
    return f'<dl class="u-facts">{cells}</dl><div class="u-how"><p>{how}</p>{notes}</div>'


def gallery(outcome: Outcome, session: Session, rows: Sequence[int], page: int, chosen: int | None = None) -> str:
    """A page of pictures as buttons: the class, how sure it is, and whether looking together changed it."""
    if not rows:
        return '<p class="u-empty">No image has this class.</p>'
    pages = -(-len(rows) // PER_PAGE)
    page = min(max(page, 0), pages - 1)
    changed, labels, sure = set(outcome.changed), outcome.labels.tolist(), outcome.confidence.tolist()
    tiles = []
    for i in rows[page * PER_PAGE : (page + 1) * PER_PAGE]:
        mine = session.corrections.get(i)
        k = labels[i] if mine is None else mine
        tiles.append(_tile(outcome, i, k, sure[i], mine is not None, i in changed, i == chosen))
    body = f'<ul class="u-tiles">{"".join(tiles)}</ul>'
    if pages > 1:
        body += (
            '<nav class="u-pages" aria-label="Pages">'
            f'<button data-page="{page - 1}" {"disabled" if page == 0 else ""}>← Previous</button>'
            f"<span>Page {page + 1} of {pages}</span>"
            f'<button data-page="{page + 1}" {"disabled" if page == pages - 1 else ""}>Next →</button></nav>'
        )
    return body


def _tile(outcome: Outcome, i: int, k: int, sure: float, mine: bool, changed: bool, chosen: bool) -> str:
    name, item = outcome.class_names[k], outcome.items[i]
    percent = "yours" if mine else f"{100 * sure:.0f} %"
    said = f"{item.name}: {name}, " + ("labelled by you" if mine else f"{100 * sure:.0f} % sure")
    mark, classes = "", ["u-tile"]
    if changed and not mine:
        single = outcome.one_by_one
        other = outcome.class_names[int(outcome.together[i].argmax() if single else outcome.alone[i])]
        said += f"; {'together' if single else 'by itself'} {other}"
        mark = f'<span class="u-was" aria-hidden="true">{"or" if single else "was"} {text(shown(other))}</span>'
    classes += ["u-mine"] * mine + ["u-chosen"] * chosen
    return (
        f'<li><button type="button" class="{" ".join(classes)}" data-index="{i}" style="--c:{colour(k)}" '
        f'aria-pressed="{str(chosen).lower()}" '
        f'aria-label="{text(said)}" title="{text(said)}"><span class="u-pic">{_picture(item)}{mark}</span>'
        f'<span class="u-name">{text(shown(name))}</span>'
        f'<span class="u-sure"><i style="width:{100 if mine else 100 * sure:.0f}%"></i></span>'
        f'<span class="u-percent">{percent}</span></button></li>'
    )


def chosen(outcome: Outcome, session: Session, index: int) -> str:
    """One image, larger, with the classes that come into question."""
    if not 0 <= index < len(outcome):
        raise InputError(f"image: expected a number in 0 … {len(outcome) - 1}, got {index}")
    item = outcome.items[index]
    sure, best = outcome.probabilities[index].topk(min(3, len(outcome.class_names)))
    bars = "".join(
        f'<li style="--c:{colour(k)}"><span>{text(shown(outcome.class_names[k]))}</span>'
        f'<span class="u-sure"><i style="width:{100 * p:.0f}%"></i></span>'
        f"<b>{100 * p:.0f} %</b></li>"
        for p, k in zip(sure.tolist(), best.tolist(), strict=True)
    )
    mine = session.corrections.get(index)
    said = "" if mine is None else f"<p>You say: <strong>{text(outcome.class_names[mine])}</strong></p>"
    return (
        f'<div class="u-one">{_picture(item, alt=item.name)}<div><p><b>{text(shown(item.name))}</b></p>'
        f'<ul class="u-bars">{bars}</ul>{said}</div></div>'
    )


def changes(outcome: Outcome) -> str:
    """One by one against together: how many changed and which, and the shares of the classes."""
    changed, names, together = outcome.changed, outcome.class_names, outcome.together.argmax(1)
    total = len(outcome) - len(outcome.corrected)
    lead = (
        "<p>Looked at one by one, each image gets the class whose examples are nearest. "
        "Looked at together, the images also learn from each other. "
        f"<strong>{len(changed)} of {total}</strong> {'image' if total == 1 else 'images'} "
        f"{'would get' if outcome.one_by_one else 'got'} another class.</p>"
    )
    if outcome.one_by_one:
        lead += (
            f"<p>The answers are those of <code>{text(outcome.method)}</code>, one by one; "
            "choose automatic under “How” for the others.</p>"
        )
    right, known = outcome.right(together)
    if known:
        before = outcome.right(outcome.alone)[0]
        lead += (
            f"<p>Of {known} whose class is known, <strong>{before}</strong> are right one by one and "
            f"<strong>{right}</strong> together.</p>"
        )
    tiles = "".join(_change(outcome, i) for i in changed[:PER_PAGE])
    more = (
        f'<p class="u-empty">and {len(changed) - PER_PAGE} more, all in the CSV</p>' if len(changed) > PER_PAGE else ""
    )
    alone = Counter(outcome.alone.tolist())
    joint = Counter(together.tolist())
    order = sorted(range(len(names)), key=lambda k: (-joint[k], -alone[k], k))[:CLASSES_SHOWN]
    top = max([*alone.values(), *joint.values()])
    rows = "".join(
        f'<tr style="--c:{colour(k)}"><th scope="row" class="u-class" style="text-align:left">'
        f"{text(shown(names[k]))}</th>"
        f'<td><span class="u-sure u-thin"><i style="width:{100 * alone[k] / top:.0f}%"></i></span>'
        f'<span class="u-sure"><i style="width:{100 * joint[k] / top:.0f}%"></i></span></td>'
        f'<td style="text-align:right">{alone[k]}</td><td style="text-align:right">{joint[k]}</td></tr>'
        for k in order
    )
    table = (
        '<table class="u-shares"><thead><tr><th scope="col" class="u-class" style="text-align:left">class</th><td></td>'
        '<th scope="col" style="text-align:right">one by one</th>'
        '<th scope="col" style="text-align:right">together</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
    return f'<div class="u-text">{lead}</div>{table}<ul class="u-tiles u-changes">{tiles}</ul>{more}'


def _change(outcome: Outcome, i: int) -> str:
    before, after = int(outcome.alone[i]), int(outcome.together[i].argmax())
    mark = ""
    if outcome.truth[i] >= 0:
        now, then = outcome.truth[i] == after, outcome.truth[i] == before
        mark = " ✓ now right" if now else " ✗ was right" if then else " both wrong"
    return (
        f'<li class="u-tile" style="--c:{colour(after)}">'
        f'<span class="u-pic">{_picture(outcome.items[i], alt=outcome.items[i].name)}</span>'
        f'<span class="u-name"><s>{text(shown(outcome.class_names[before]))}</s> → '
        f"{text(shown(outcome.class_names[after]))}</span>"
        f'<span class="u-percent">{100 * float(outcome.together[i].amax()):.0f} %{mark}</span></li>'
    )


# -- layers ------------------------------------------------------------------------------------------------------------


def layers(outcome: Outcome) -> str:
    """Pictures in rows, one for each class; the page moves them as the layer changes. Numbers go along as data."""
    if outcome.layers is None:
        return f'<p class="u-empty">{text(outcome.method)} has no layers to watch; unem-plus has.</p>'
    u = outcome.layers
    labels, shares = u.argmax(-1), u.mean(1)
    top = shares.amax(0)
    shown_classes = sorted(top.topk(min(CLASSES_SHOWN, len(top))).indices.tolist(), key=lambda k: -float(shares[-1, k]))
    ids = set(shown_classes)
    queries = [i for i in range(min(len(outcome), MOVING)) if set(labels[:, i].tolist()) <= ids]
    data = {
        "labels": [[int(row[i]) for i in queries] for row in labels],
        "shares": [[round(float(row[k]), 4) for k in shown_classes] for row in shares],
        "sure": [[round(float(p), 2) for p in row[queries]] for row in u.amax(-1)],
        "classes": shown_classes,
    }
    pictures = "".join(
        f'<span class="u-mini" data-query="{n}" title="{text(outcome.items[i].name)}" '
        f'style="--c:{colour(int(labels[0, i]))}">'
        f"{_picture(outcome.items[i], mini=True)}</span>"
        for n, i in enumerate(queries)
    )
    rows = "".join(
        f'<div class="u-lane" data-class="{k}" style="--c:{colour(k)}">'
        f'<div class="u-lane-name"><b>{text(shown(outcome.class_names[k]))}</b>'
        '<span class="u-sure"><i></i></span><span class="u-share"></span></div>'
        '<div class="u-lane-pictures"></div></div>'
        for k in shown_classes
    )
    count = len(u)
    return (
        f'<div class="u-layers" data-layers="{text(json.dumps(data))}"><div class="u-player">'
        '<button type="button" class="u-play" aria-label="Play">▶</button>'
        f'<label>Layer <input type="range" min="1" max="{count}" value="{count}" step="1" aria-label="Layer"></label>'
        f'<output aria-live="polite"></output></div><div class="u-pool" hidden>{pictures}</div>{rows}</div>'
    )
