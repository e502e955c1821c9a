#!/usr/bin/env python3
"""Draws what the demo printed as docs/demo.svg: `scripts/demo.sh | tee demo.log; scripts/demo_picture.py demo.log docs/demo.svg`."""
import sys
from html import escape
from pathlib import Path

WIDTH, LINE, LETTER, COLUMNS = 1000, 17, 8.1, 118


def rows(text):
    """Lines as a terminal of that width shows them; what a progress bar wrote over is gone."""
    for line in text.split("\n"):
        line = line.split("\r")[-1].rstrip()
        while len(line) > COLUMNS:
            yield line[:COLUMNS]
            line = line[COLUMNS:]
        yield line


def main():
    lines = list(rows(Path(sys.argv[1]).read_text().strip("\n")))
    height = LINE * (len(lines) + 2)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="monospace" font-size="13.5">',
           f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#16181d"/>']
    for number, line in enumerate(lines):
        if line:
            colour = "#7fd1b9" if line.startswith("== ") else "#d8dbe0"
            out.append(f'<text x="14" y="{LINE * (number + 1.6):.0f}" fill="{colour}" xml:space="preserve" '
                       f'textLength="{LETTER * len(line):.0f}">{escape(line)}</text>')
    Path(sys.argv[2]).write_text("\n".join([*out, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
