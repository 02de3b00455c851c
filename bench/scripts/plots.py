# SPDX-License-Identifier: Apache-2.0
"""Line and bar charts as SVG, the same bytes on every machine."""

import math
from xml.sax.saxutils import escape

COLOURS = ["#888888", "#0b6e4f", "#5fb49c", "#c8553d", "#e9a03b", "#4464ad", "#8e5572"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 480, 320, 62, 12, 34, 46


def _svg(panels, width, height):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">\n'
    return head + f'<rect width="{width}" height="{height}" fill="white"/>\n' + "".join(panels) + "</svg>\n"


def _text(x, y, text, anchor="middle", extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(str(text))}</text>\n'


def _line(x1, y1, x2, y2, colour="#dddddd"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>\n'


def _axis_name(x, y, name):
    return _text(x, y, name, extra=f' transform="rotate(-90 {x:.1f} {y:.1f})"')


def _decades(series):
    """Ticks for a logarithmic axis."""
    ys = [y for _, points in series for _, y in points]
    return [10**power for power in range(math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys))) + 1)]


def steps(low, high):
    """Round ticks for a linear axis from below `low` to above `high`, four to nine of them."""
    spread = max(high - low, 1e-9)
    unit = 10 ** math.floor(math.log10(spread))
    step = next(unit * part for part in (0.2, 0.5, 1, 2) if spread / (unit * part) <= 7)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * number, 9) for number in range(first, last + 1)]


def _panel(x0, title, series, ticks, y_name, y_ticks, x_scale):
    """`series`: [(name, [(x, y), ...])]; `ticks`: [(x, label)]. The y axis is linear where it has `y_ticks`, else logarithmic."""
    y_scale = float if y_ticks else math.log10
    y_ticks = y_ticks or _decades(series)
    low, high = y_scale(y_ticks[0]), y_scale(y_ticks[-1])
    x_low, x_high = x_scale(ticks[0][0]), x_scale(ticks[-1][0])

    def place(x, y):
        across = (x_scale(x) - x_low) / (x_high - x_low or 1)
        up = (y_scale(y) - low) / (high - low or 1)
        return x0 + LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    text = _text(x0 + (LEFT + WIDTH) / 2, 20, title, extra=' font-weight="bold"')
    for tick in y_ticks:
        _, y = place(ticks[0][0], tick)
        text += _line(x0 + LEFT, y, x0 + WIDTH - RIGHT, y) + _text(x0 + LEFT - 6, y + 4, f"{tick:g}", "end")
    for x, label in ticks:
        across, _ = place(x, y_ticks[0])
        text += _line(across, TOP, across, HEIGHT - BOTTOM)
        if x == ticks[-1][0] and len(str(label)) > 3:  # or it would be cut at the edge
            text += _text(x0 + WIDTH - 2, HEIGHT - BOTTOM + 16, label, "end")
        else:
            text += _text(across, HEIGHT - BOTTOM + 16, label)
    for number, (_, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        places = [place(x, y) for x, y in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        text += f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>\n'
        text += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>\n' for x, y in places)
    return text + _axis_name(x0 + 16, (TOP + HEIGHT - BOTTOM) / 2, y_name)


def _legend(names, y, width, line=None):
    """The name of the line comes last."""
    text, step = "", (width - 2 * LEFT) / (len(names) + (line is not None))
    for number, name in enumerate(names):
        x = LEFT + number * step
        text += f'<rect x="{x:.1f}" y="{y - 9}" width="12" height="10" fill="{COLOURS[number % len(COLOURS)]}"/>\n'
        text += _text(x + 18, y, name, "start")
    if line is not None:
        x = LEFT + len(names) * step
        text += _line(x, y - 4, x + 12, y - 4, "black") + _text(x + 18, y, line, "start")
    return text


def lines(panels, ticks, y_name, y_ticks=None, x_scale=math.log2):
    """Panels side by side: [(title, series)], with the same series names in each."""
    width = WIDTH * len(panels)
    drawn = [_panel(number * WIDTH, title, series, ticks, y_name, y_ticks, x_scale) for number, (title, series) in enumerate(panels)]
    drawn.append(_legend([name for name, _ in panels[0][1]], HEIGHT - 6, width))
    return _svg(drawn, width, HEIGHT)


def bars(groups, names, y_name, limit_name):
    """`groups`: [(label, [value, ...], limit)], a value for each name; the limit is a line over the group's bars."""
    step, bar = 96, 30
    width = LEFT + step * len(groups) + RIGHT
    top = max(max(*values, limit) for _, values, limit in groups)
    unit = 10 ** math.floor(math.log10(top))
    top = math.ceil(top / unit * 2) * unit / 2

    def up(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    drawn = []
    for tick in range(int(top / unit * 2) + 1):
        y = up(tick * unit / 2)
        drawn.append(_line(LEFT, y, width - RIGHT, y) + _text(LEFT - 6, y + 4, f"{tick * unit / 2:g}", "end"))
    for number, (label, values, limit) in enumerate(groups):
        x = LEFT + number * step + (step - bar * len(values)) / 2
        for i, value in enumerate(values):
            y = up(value)
            drawn.append(f'<rect x="{x + i * bar:.1f}" y="{y:.1f}" width="{bar - 4}" height="{HEIGHT - BOTTOM - y:.1f}" ')
            drawn.append(f'fill="{COLOURS[i]}"/>\n' + _text(x + i * bar + bar / 2 - 2, y - 4, f"{value:.0f}", extra=' font-size="10"'))
        drawn.append(_line(x - 4, up(limit), x + bar * len(values), up(limit), "black"))
        for i, part in enumerate(label.split("\n")):
            drawn.append(_text(x + bar * len(values) / 2, HEIGHT - BOTTOM + 14 + 13 * i, part, extra=' font-size="11"'))
    drawn.append(_axis_name(16, (TOP + HEIGHT - BOTTOM) / 2, y_name))
    drawn.append(_legend(names, 16, width + LEFT, limit_name))
    return _svg(drawn, width, HEIGHT)
