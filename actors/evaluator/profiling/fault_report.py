"""Reads what compute-sanitizer and AddressSanitizer report of a fault.  Pure.

The text passes through a process tree with candidate code, so it is bounded, may be anything, and
is shown to people and models only; `inspection.memcheck_errors` is the one exception.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from actors.evaluator.ipc.logs import clean_log
from actors.evaluator.profiling.ncu_report import short_kernel_name
from protocol.values import Value

MAX_CHARS = 1 << 20
LINE_CHARS = 200
MAX_LINE_CHARS = 2000  # at each end of a line that is read
MAX_LINES = 8
REPORT_END = "\n========= \n"
MAX_FAULTY_THREADS = 1000  # whose reports are read
LOCATION_CHARS = 480  # of a location in one line
SOURCE_CHARS = 120  # of the source line in it

_SUMMARY = re.compile(r"^=+ (?:Error: |Warning: )?(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)")
_PREFIXED = re.compile(r"^=+ ?(.*)$")
# Lines of the sanitizer about itself and about the program's end.
_ABOUT_ITSELF = re.compile(
    r"COMPUTE-SANITIZER|Error: (?:process|No attachable)|Target application|Process |"
    r"Internal|LEAK SUMMARY|NOTE"
)
_DETAIL = re.compile(r"^\s+(?:at|by thread|and|Access|Address|Write Thread|Read Thread)\b")
_OFFSET = re.compile(r"\+?0x[0-9a-f]+$")
_PLACE = re.compile(r"(?P<file>[^:]+):(?P<line>\d{1,7})(?::(?P<kernel>.*))?")
_BY = re.compile(r"by thread (\([\d,]{1,40}\)) in block (\([\d,]{1,40}\))")
_ADDRESS = re.compile(r"(?:Access to|Address) (0x[0-9a-f]{1,16}) (.{1,100})")
_NEAREST = re.compile(r"and is (.{1,160})")
_HIT = re.compile(r'Program hit (cuda\w+) \(error \d+\) due to "([^"]{1,200})"')

# What a device prints itself when an assertion in a kernel fails: CUDA's assert, and Triton's.
_DEVICE_ASSERTION = re.compile(
    r"^(?P<file>[^\n:]{1,300}):(?P<line>\d{1,7}): (?P<function>[^\n]{1,300}?): block: "
    r"\[(?P<block>[\d,]{1,40})\],? thread: \[(?P<thread>[\d,]{1,40})\] "
    r"Assertion `(?P<what>[^\n]{0,200}?)` failed",
    re.MULTILINE,
)
# AddressSanitizer, and its summary of a signal.
_ASAN_ERROR = re.compile(
    r"^==\d+==ERROR: AddressSanitizer: (?P<what>[\w -]{1,60}?) on (?:unknown )?address "
    r"(?P<address>0x[0-9a-f]{1,16})",
    re.MULTILINE,
)
_ASAN_ACCESS = re.compile(r"^(READ|WRITE) of size (\d{1,12}) at", re.MULTILINE)
_ASAN_SIGNAL = re.compile(r"The signal is caused by a (READ|WRITE) memory access")
_ASAN_REGION = re.compile(
    r"is located (\d+ bytes (?:to the right|to the left|after|before|inside) of \d+-byte region)"
)
_ASAN_FRAME = re.compile(
    r"^\s+#\d+ 0x[0-9a-f]+ in (?P<function>.{1,400}?) (?P<file>/[^\s:()]{1,400}):(?P<line>\d{1,7})",
    re.MULTILINE,
)


class FaultReport(Value, frozen=True, kw_only=True):
    """One fault: what happened, where, and which thread did it; "" where it is not known."""

    what: str
    function: str = ""  # a kernel or a C++ function
    file: str = ""  # the name without folders
    line: int = 0
    thread: str = ""
    block: str = ""
    address: str = ""
    region: str = ""  # where the address is, beside the allocations


class SanitizerReport(Value, frozen=True, kw_only=True):
    """The findings of compute-sanitizer; `count` is None where it did not run to its end."""

    count: int | None = None
    lines: tuple[str, ...] = ()
    faults: tuple[FaultReport, ...] = ()  # of different places, the first one first

    @property
    def is_clean(self) -> bool:
        return self.count == 0


# --- compute-sanitizer ----------------------------------------------------------------------------


def read_sanitizer(text: str) -> SanitizerReport:
    """Return the number of errors that memcheck or racecheck counted, and the first of them."""
    count: int | None = None
    blocks: list[list[str]] = []
    for line in text[:MAX_CHARS].splitlines():
        found = _SUMMARY.match(line)
        if found:
            # A second summary tells how many errors were not printed.
            count = int(found[1][:9]) if count is None else count
            continue
        prefixed = _PREFIXED.match(line)
        content = prefixed[1] if prefixed else ""
        if len(content) > 2 * MAX_LINE_CHARS:  # a kernel's name can be of any length
            content = f"{content[:MAX_LINE_CHARS]}…{content[-MAX_LINE_CHARS:]}"
        if content and not content.startswith(" ") and not _ABOUT_ITSELF.match(content):
            blocks.append([])
        elif not (blocks and _DETAIL.match(content)):
            continue
        if len(blocks) <= MAX_FAULTY_THREADS:
            blocks[-1].append(clean_log(content).rstrip())
    # Each faulty thread reports its place in the source; each place is shown once.
    places: dict[tuple[str, ...], list[str]] = {}
    for block in filter(None, blocks):
        places.setdefault(tuple(block[:2]), block)
    lines = [line[:LINE_CHARS] for block in places.values() for line in block]
    faults = [_fault(block) for block in places.values()]
    return SanitizerReport(
        count=count, lines=tuple(lines[:MAX_LINES]), faults=tuple(faults[:MAX_LINES])
    )


def _fault(block: Sequence[str]) -> FaultReport:
    function, file, line = "", "", 0
    thread = where = address = region = ""
    hit = _HIT.search(block[0])
    what = f"{hit[1]}: {hit[2]}" if hit else block[0].strip()
    for detail in block[1:]:
        by = _BY.search(detail)
        if detail.lstrip().startswith("at ") and not function:
            function, file, line = _place_of(detail.strip().removeprefix("at "))
        if by:
            thread, where = by[1], by[2]
        if found := _ADDRESS.search(detail):
            address, region = found[1], found[2]
        elif address and (nearest := _NEAREST.search(detail)):
            region = f"{region}, {nearest[1]}"
    return FaultReport(
        what=what[:LINE_CHARS],
        function=short_kernel_name(function),
        file=file[:LINE_CHARS],
        line=line,
        thread=thread,
        block=where,
        address=address,
        region=re.sub(r" at 0x[0-9a-f]+", "", region)[:LINE_CHARS],
    )


def _place_of(text: str) -> tuple[str, str, int]:
    """Return kernel, file and line in "w(float *)+0x70 in k.cu:7".

    Older versions print "0x70 in /x/k.cu:7:w(float *)".
    """
    code, _in, where = text.rpartition(" in ")
    place = _PLACE.fullmatch(where) if code else None
    if place is None:
        return _OFFSET.sub("", text), "", 0
    kernel = place["kernel"] or _OFFSET.sub("", code)
    return kernel, place["file"].rpartition("/")[2], int(place["line"])


def is_located(text: str) -> bool:
    """Whether a sanitizer's output so far holds a whole report of an access with its place."""
    whole_reports = text[: 4 * MAX_LINE_CHARS].split(REPORT_END)[:-1]
    return any(fault.function for one in whole_reports for fault in read_sanitizer(one).faults)


# --- assertions of a device -----------------------------------------------------------------------


def read_device_assertion(log: str) -> FaultReport | None:
    """Return the assertion that failed in a kernel; None if the log has none."""
    found = _DEVICE_ASSERTION.search(log[:MAX_CHARS])
    if found is None:
        return None
    return FaultReport(
        what=f"assertion `{found['what']}` failed",
        function=short_kernel_name(found["function"]),
        file=found["file"].rpartition("/")[2][:LINE_CHARS],
        line=int(found["line"]),
        thread=f"({found['thread']})",
        block=f"({found['block']})",
    )


# --- AddressSanitizer -----------------------------------------------------------------------------


def read_address_sanitizer(text: str, folder: str) -> FaultReport | None:
    """Return the fault that AddressSanitizer reports of code on the host; None without one.

    The place is that of the innermost frame whose source is in the candidate's `folder`.
    """
    text = clean_controls(text[:MAX_CHARS])
    error = _ASAN_ERROR.search(text)
    if error is None:
        return None
    report = text[error.start() :]
    access = _ASAN_ACCESS.search(report)
    signal = _ASAN_SIGNAL.search(report)
    kind = access or signal
    size = f" of {access[2]} bytes" if access else ""
    verb = f", a {kind[1].lower()}{size}" if kind else ""
    region = _ASAN_REGION.search(report)
    stack = report.split("\n\n", 1)[0]
    frames = list(_ASAN_FRAME.finditer(stack))
    own = next((frame for frame in frames if frame["file"].startswith(f"{folder}/")), None)
    return FaultReport(
        what=f"{error['what'].strip()}{verb}",
        function=short_kernel_name(own["function"]) if own else "",
        file=own["file"].rpartition("/")[2][:LINE_CHARS] if own else "",
        line=int(own["line"]) if own else 0,
        address=error["address"],
        region=region[1] if region else "",
    )


def clean_controls(text: str) -> str:
    """Return `text` without control characters except line ends."""
    return "".join(char for char in text if char == "\n" or char.isprintable())


# --- the location, for people and models ----------------------------------------------------------


def fault_location(report: FaultReport, source: str, source_line: str = "") -> str:
    """Return one line: what happened, kernel, line, thread, address.

    `source`: the candidate's text.  `source_line`: the faulty line of the file that was compiled;
    it is shown only where the candidate's text contains it.
    """
    parts = [report.what]
    if report.function:
        parts.append(f"in {report.function}")
    if report.file and report.line:
        parts.append(f"at {report.file}:{report.line}{_own_line(source, source_line)}")
    if report.thread:
        parts.append(f"by thread {report.thread} of block {report.block}")
    text = " ".join(parts)
    if report.address:
        text += f"; address {report.address}"
        joint = " " if report.region.startswith("is ") else ", "
        text += f"{joint}{report.region}" if report.region else ""
    line = " ".join(text.split())
    return line if len(line) <= LOCATION_CHARS else f"{line[: LOCATION_CHARS - 1]}…"


def _own_line(source: str, compiled: str) -> str:
    """Return the line in the candidate's own file, with its number if there is only one such."""
    wanted = compiled.strip()
    if not wanted:
        return ""
    numbers = [n for n, line in enumerate(source.splitlines(), 1) if line.strip() == wanted]
    if not numbers:
        return ""
    shown = wanted if len(wanted) <= SOURCE_CHARS else f"{wanted[: SOURCE_CHARS - 1]}…"
    where = f"line {numbers[0]} of the candidate, " if len(numbers) == 1 else ""
    return f" ({where}`{shown}`)"
