"""Turn what a command shows on a terminal into a picture.

    python docs/picture.py docs/memories.svg brain memories

Needs a Unix terminal and nothing but the standard library.
"""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import unicodedata
from pathlib import Path
from xml.sax.saxutils import escape

COLUMNS = 80
CELL, LINE, EDGE = 8.4, 20, 16  # a character's width, a line's height, the margin, in pixels
PLAIN, BACK = "#d8dee9", "#20242c"
COLOURS = dict(
    zip(
        "30 31 32 33 34 35 36 37".split(),
        "#4c566a #e06c75 #98c379 #e5c07b #61afef #c678dd #56b6c2 #d8dee9".split(),
        strict=True,
    )
)


def terminal_output(command):
    """Return what command writes to a terminal of COLUMNS."""
    child, master = pty.fork()
    if not child:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    data = b""
    try:
        while piece := os.read(master, 65_536):
            data += piece
    except OSError:  # the terminal is closed
        pass
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{command[0]} failed:\n{data.decode(errors='replace')}")
    return data.decode().replace("\r\n", "\n")


def runs(line, style):
    """Yield (text, style) for the parts of a line between its colour sequences."""
    for part in re.split(r"(\x1b\[[\d;]*m)", line):
        if not part.startswith("\x1b"):
            yield part, dict(style)
            continue
        for code in part[2:-1].split(";"):
            if code in ("", "0"):
                style.clear()
            elif code in COLOURS:
                style["fill"] = COLOURS[code]
            elif code in ("1", "2"):
                style |= {"font-weight": "bold"} if code == "1" else {"opacity": "0.6"}
            elif code == "39":
                style.pop("fill", None)


def width(text):
    """Return how many cells of the terminal text takes."""
    signs = (sign for sign in text if not unicodedata.combining(sign))
    return sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in signs)


def picture(text):
    """Return text with its colours as SVG; every piece is stretched to its cells."""
    drawn, style, lines = [], {}, text.rstrip("\n").split("\n")
    for row, line in enumerate(lines):
        column, y = 0, EDGE + LINE * row + 14
        for part, shape in runs(line, style):
            more = "".join(f' {name}="{value}"' for name, value in shape.items())
            for piece in re.finditer(r"\S+(?: \S+)*", part):
                x = EDGE + CELL * (column + width(part[: piece.start()]))
                place = f'x="{x:.1f}" y="{y}" textLength="{CELL * width(piece[0]):.1f}"'
                drawn.append(f"<text {place}{more}>{escape(piece[0])}</text>")
            column += width(part)
    size = f"{2 * EDGE + CELL * COLUMNS:.0f} {2 * EDGE + LINE * len(lines)}"
    wide, high = size.split()
    font = 'font-family="Menlo, \'DejaVu Sans Mono\', Consolas, monospace" font-size="14"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{wide}"'
    back = f'<rect width="{wide}" height="{high}" rx="8" fill="{BACK}"/>'
    group = f'<g {font} fill="{PLAIN}">'
    return "\n".join([f'{head} height="{high}">', back, group, *drawn, "</g>", "</svg>", ""])


def main():
    """Write the picture of a command's output to a file."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    target, *command = sys.argv[1:]
    shown = f"\x1b[2m$\x1b[0m {' '.join(command)}\n{terminal_output(command)}"
    Path(target).write_text(picture(shown), encoding="utf-8")


if __name__ == "__main__":
    main()
