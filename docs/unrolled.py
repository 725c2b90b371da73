"""Draws the unrolled network of how-it-works.md: the layers in a row, and one of them opened.

    python docs/unrolled.py     # writes docs/images/unrolled.svg

Plain SVG, so that it needs nothing but Python.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 960, 560
INK, MUTED, LINE = "#1f2430", "#555e70", "#9aa3b2"
FEATURES, LAW, LEARNED = "#173f7a", "#e8eef8", "#c8500a"  # features, what a law does, what is learned
STYLE = f"""
text {{ font: 15px "DejaVu Sans", Verdana, Arial, sans-serif; fill: {INK}; text-anchor: middle; }}
.small {{ font-size: 13px; fill: {MUTED}; }}
.learned {{ fill: {LEARNED}; font-weight: bold; }}
.start {{ text-anchor: start; }}
.strong {{ font-weight: bold; }}
path {{ fill: none; stroke: {MUTED}; stroke-width: 1.8; }}
"""


def box(x: float, y: float, w: float, h: float, lines: list[tuple[str, str]], fill: str = "white") -> str:
    """A box with lines of text, the middle of which is its own."""
    shape = f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="7" fill="{fill}" stroke="{LINE}" stroke-width="1.5"/>'
    first = y + h / 2 + 5 - 10.5 * (len(lines) - 1)
    return shape + "".join(text(x + w / 2, first + 21 * i, line, look) for i, (line, look) in enumerate(lines))


def text(x: float, y: float, words: str, look: str = "") -> str:
    """Text around x; ``θ_nk`` has its index below the line."""
    lowered = re.sub(
        r"_([A-Za-z0-9]+)", r'<tspan dy="4" font-size="75%">\1</tspan><tspan dy="-4">&#8203;</tspan>', escape(words)
    )
    return f'<text x="{x}" y="{y}" class="{look}">{lowered}</text>'


def arrow(path: str, colour: str = MUTED) -> str:
    head = "learned" if colour == LEARNED else "plain"
    return f'<path d="{path}" style="stroke:{colour}" marker-end="url(#{head})"/>'


def network() -> str:
    """All layers in a row."""
    parts = [box(20, 60, 150, 76, [("support", ""), ("and its labels", "small")], "#f4f6fa")]
    parts.append(box(20, 156, 150, 56, [("queries", "")], "#f4f6fa"))
    for i, (name, index) in enumerate((("layer 1", "1"), ("layer 2", "2"), ("layer L", "L"))):
        x = 240 + 190 * i + (60 if i == 2 else 0)
        parts.append(box(x, 84, 120, 84, [(name, "strong")], LAW))
        parts.append(arrow(f"M{x + 60} 50 V80", LEARNED))
        parts.append(text(x + 60, 40, f"λ_{index}, T_{index}", "learned"))
    parts += [arrow("M170 98 H205 V112 H234"), arrow("M170 184 H205 V140 H234")]
    parts += [arrow("M360 126 H424"), text(392, 116, "u", "small")]
    parts += [arrow("M550 126 H580"), text(614, 131, "· · ·", "strong"), arrow("M648 126 H674")]
    parts += [
        arrow("M800 126 H840"),
        box(846, 84, 100, 84, [("u⁽ᴸ⁾", "strong"), ("probabilities", "small")], "#f4f6fa"),
    ]
    parts.append(text(95, 40, "features × T_z", "learned"))
    return "".join(parts)


def layer() -> str:
    """One of them, opened."""
    parts = [
        '<rect x="120" y="290" width="720" height="220" rx="10" fill="#fafbfd" '
        f'stroke="{LINE}" stroke-dasharray="5 4"/>'
    ]
    parts.append(f'<path d="M430 168 L120 290 M550 168 L840 290" style="stroke:{LINE};stroke-dasharray:5 4"/>')
    parts.append(
        box(
            170,
            312,
            240,
            72,
            [("M-step: fit the law", "strong"), ("θ_k ← argmax Σ_n u_nk ln p(z_n|θ_k)", "small")],
            LAW,
        )
    )
    parts.append(box(170, 416, 240, 72, [("proportions", "strong"), ("π_k ← mean of u_nk", "small")], LAW))
    parts.append(
        box(
            500,
            352,
            290,
            92,
            [
                ("E-step: assign", "strong"),
                ("u_n ← softmax_k( (ln p(z_n|θ_k)", "small"),
                ("+ λ/|Q| · ln π_k) / T )", "small"),
            ],
            LAW,
        )
    )
    parts += [arrow("M70 400 H142 V348 H164"), arrow("M142 400 V452 H164"), text(64, 390, "u⁽ˡ⁾")]
    parts += [arrow("M410 348 H455 V384 H494"), arrow("M410 452 H455 V412 H494")]
    parts += [text(432, 338, "θ", "small"), text(432, 474, "π", "small")]
    parts += [arrow("M790 400 H890"), text(896, 390, "u⁽ˡ⁺¹⁾")]
    parts += [arrow("M600 536 V448", LEARNED), text(590, 552, "λ of this layer", "learned")]
    parts += [arrow("M730 536 V448", LEARNED), text(740, 552, "T of this layer", "learned")]
    parts += [text(290, 552, "z: the same features in every layer", "small")]
    return "".join(parts)


def svg() -> str:
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" style="fill:{colour};stroke:none"/></marker>'
        for name, colour in (("plain", MUTED), ("learned", LEARNED))
    )
    title = "UNEM: the iterations of generalized EM as layers of a network"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT + 10}" role="img" aria-label="{title}">'
        f"<title>{title}</title><style>{STYLE}</style><defs>{heads}</defs>"
        f'<rect width="{WIDTH}" height="{HEIGHT + 10}" fill="white"/>{network()}{layer()}</svg>\n'
    )


if __name__ == "__main__":
    target = Path(__file__).parent / "images" / "unrolled.svg"
    target.write_text(svg(), encoding="utf-8")
    print(target)
