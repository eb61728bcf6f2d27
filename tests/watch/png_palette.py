"""Screenshots made small: a PNG of 8-bit RGB becomes one with a palette."""

from __future__ import annotations

import struct
import zlib
from collections import Counter

SIGNATURE = b"\x89PNG\r\n\x1a\n"
FREQUENT, RARE = 150, 50  # colours: a small cross in red must stay red
CHANNELS = {2: 3, 6: 4}  # of the colour types that a browser writes


def with_palette(png: bytes) -> bytes:
    """Return the picture with few of its colours; each other becomes the nearest of them."""
    width, height, pixels = decoded(png)
    counts = Counter(pixels)
    palette = chosen(counts)
    index = {colour: nearest(colour, palette) for colour in counts}
    rows = b"".join(
        b"\0" + bytes(index[pixel] for pixel in pixels[row * width : (row + 1) * width])
        for row in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"PLTE", b"".join(bytes(colour) for colour in palette))]
    chunks += [(b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return SIGNATURE + b"".join(chunk(name, body) for name, body in chunks)


def chosen(counts: Counter[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the most frequent colours, and then those that differ most from all chosen ones."""
    palette = [colour for colour, _ in counts.most_common(FREQUENT)]
    far = {colour: min(distance(colour, known) for known in palette) for colour in counts}
    for _ in range(RARE):
        colour = max(far, key=far.__getitem__)
        palette.append(colour)
        far = {one: min(away, distance(one, colour)) for one, away in far.items()}
    return palette


def distance(one: tuple[int, int, int], other: tuple[int, int, int]) -> int:
    """Return how far two colours are apart, squared."""
    return (one[0] - other[0]) ** 2 + (one[1] - other[1]) ** 2 + (one[2] - other[2]) ** 2


def chunk(name: bytes, body: bytes) -> bytes:
    """Return one part of a PNG."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def nearest(colour: tuple[int, int, int], palette: list[tuple[int, int, int]]) -> int:
    """Return the place of the colour that differs least."""
    distances = [distance(colour, known) for known in palette]
    return distances.index(min(distances))


def decoded(png: bytes) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Return width, height and the pixels without transparency."""
    place, data = len(SIGNATURE), b""
    width = height = channels = 0
    while place < len(png):
        (size,) = struct.unpack_from(">I", png, place)
        name, body = png[place + 4 : place + 8], png[place + 8 : place + 8 + size]
        if name == b"IHDR":
            width, height, depth, kind = struct.unpack_from(">IIBB", body)
            assert depth == 8
            channels = CHANNELS[kind]
        elif name == b"IDAT":
            data += body
        place += size + 12
    lines = unfiltered(zlib.decompress(data), width * channels, height, channels)
    pixels = [
        (line[at], line[at + 1], line[at + 2])
        for line in lines
        for at in range(0, len(line), channels)
    ]
    return width, height, pixels


def unfiltered(raw: bytes, stride: int, height: int, channels: int) -> list[bytearray]:
    """Undo the filters of a PNG's rows."""
    lines = [bytearray(stride)]
    for row in range(height):
        start = row * (stride + 1)
        line = bytearray(raw[start + 1 : start + 1 + stride])
        undo(raw[start], line, lines[-1], channels)
        lines.append(line)
    return lines[1:]


def undo(kind: int, line: bytearray, above: bytearray, channels: int) -> None:
    """Undo one row's filter in place: none, sub, up, average, Paeth."""
    if kind == 0:
        return
    for at in range(len(line)):
        left = line[at - channels] if at >= channels else 0
        up = above[at]
        corner = above[at - channels] if at >= channels else 0
        guess = paeth(left, up, corner) if kind == 4 else (0, left, up, (left + up) // 2)[kind]
        line[at] = (line[at] + guess) & 255


def paeth(left: int, up: int, corner: int) -> int:
    """Return the neighbour that is nearest to left + up - corner."""
    to_left, to_up = abs(up - corner), abs(left - corner)
    to_corner = abs(left + up - 2 * corner)
    if to_left <= to_up and to_left <= to_corner:
        return left
    return up if to_up <= to_corner else corner
