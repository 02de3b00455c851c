# SPDX-License-Identifier: Apache-2.0
"""The result for people."""

from __future__ import annotations

from typing import Any

NAMES = {"page_by_page": "raw, page by page", "packed_raw": "raw, packed", "splitzip": "splitzip: packed, encoded"}
COLUMNS = (
    ("writes", 7),
    ("bytes", 14),
    ("ratio", 7),
    ("encode", 11),
    ("transfer", 11),
    ("decode", 11),
    ("in all", 11),
    ("overlap", 8),
    ("GB/s", 7),
)


def text_of(result: dict[str, Any]) -> str:
    source, target, runs = result["prefill"], result["decode"], result["runs"]
    raw = source["raw_bytes"]
    on_gpu = source["coder"] == "GPU"
    shape = f"{source['tokens']} tokens x {source['heads']} heads x {source['dim']}"
    return "\n".join(
        [
            f"cache      {result['kv']}",
            f"           {source['tensors']} tensors of {shape}, {source['type']}: {raw:,} bytes",
            f"codebooks  {result['codebook']}",
            f"prefill    process {source['pid']}, {source['pages']} pages of {result['page_tokens']} tokens: "
            f"numbers {_pages(source)}",
            f"decode     process {target['pid']}, other pages: numbers {_pages(target)}",
            f"coded by   {' and '.join(dict.fromkeys((source['coder'], target['coder'])))}",
            f"link       {result['link']}; of {result['repeat']} runs each, the one of median time",
            "",
            " " * 26 + "".join(f"{name:>{width}}" for name, width in COLUMNS),
            *(_row(name, run, raw) for name, run in runs.items()),
            "",
            "Every bit arrived as it was, in all runs, and no byte of another page was written.",
            *_conclusions(runs, raw),
            *(
                ["Page by page, the columns encode and decode are copies between the GPU and pinned memory."]
                * (on_gpu and "page_by_page" in runs)
            ),
            *_routes(result["routes"]),
            *(
                [f"{source['without_codebook']} tensors have no codebook and went raw."]
                * bool(source["without_codebook"])
            ),
        ]
    )


def _row(name: str, run: dict[str, Any], raw: int) -> str:
    texts = (
        f"{run['frames']:,}",
        f"{run['wire_bytes']:,}",
        f"{raw / run['wire_bytes']:.3f}",
        _ms(run["encode_seconds"]),
        _ms(run["write_seconds"]),
        _ms(run["decode_seconds"]),
        _ms(run["seconds"]),
        f"{run['overlap']:.0%}",
        f"{raw / run['seconds'] / 1e9:.3g}",
    )
    return f"{NAMES[name]:26}" + "".join(f"{text:>{width}}" for text, (_, width) in zip(texts, COLUMNS, strict=True))


def _conclusions(runs: dict[str, Any], raw: int) -> list[str]:
    pages, packed, coded = runs.get("page_by_page"), runs["packed_raw"], runs["splitzip"]
    gain = f"{_times(packed, coded)} with {coded['wire_bytes'] / packed['wire_bytes']:.3f} of the bytes"
    lines = [f"Encoding makes it {gain}."]
    if pages is not None:
        lines = [
            f"Packing alone makes it {_times(pages, packed)} as fast as page by page; encoding, on top of that, {gain}; "
            f"both together {_times(pages, coded)}."
        ]
    if coded["seconds"] > packed["seconds"]:
        rate = raw / max(coded["encode_seconds"], coded["decode_seconds"])
        lines.append(
            f"On this link encoding costs time: this machine does {rate / 1e9:.2f} GB/s, so that it pays on links "
            f"below about {rate * 8 / 1e9:.1f} Gbit/s."
        )
    return lines


def _routes(routes: dict[str, Any]) -> list[str]:
    if len(routes["frames"]) < 2 and not routes["chosen"]:
        return []
    counts = ", ".join(f"{count} by {name}" for name, count in routes["frames"].items())
    chosen = f"; {routes['chosen'][0]} was chosen" if routes["chosen"] else "; none is chosen yet (--repeat)"
    return [f"Frames by route: {counts}{chosen}."]


def _pages(side: dict[str, Any]) -> str:
    shown = [str(page) for page in side["first_pages"]]
    return ", ".join([*shown, "..."] if side["pages"] > len(shown) else shown)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds else "-"


def _times(before: dict[str, Any], after: dict[str, Any]) -> str:
    return f"{before['seconds'] / after['seconds']:.2f} x"
