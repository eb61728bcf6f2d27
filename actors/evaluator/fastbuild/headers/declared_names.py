"""Which names a preprocessed text declares, and which a candidate declares: by regular expression.

For headers the expressions match too much on purpose: a name too many only costs a broken candidate
a second build by torch.  Names that are only parameters or locals do not count.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# A type and a name before "(": a function, or a local variable with constructor arguments.
_FUNCTION = re.compile(r"(?:\b(?P<before>\w+)\s+|[&*>]\s*)(?P<name>[A-Za-z_]\w*)\s*\(")
_KIND = re.compile(
    r"\b(?:struct|class|union|enum|namespace|concept)\s+"
    r"(?:(?:class|struct)\s+)?(?:__attribute__\s*\(\(.*?\)\)\s*)?(?:\w+::)*([A-Za-z_]\w*)"
)
_USING = re.compile(r"\busing\s+([A-Za-z_]\w*)\s*(?:=|__attribute__)|\busing\s[^;=]*?(\w+)\s*;")
_TYPEDEF = re.compile(r"\btypedef\b[^;{}]*?(\w+)\s*;")
_VARIABLE = re.compile(
    r"\b(?:constexpr|extern|inline|static|const|auto)\b[^;(){}=]*?\b([A-Za-z_]\w*)\s*[=;{\[]"
)
_ENUMERATORS = re.compile(r"\benum\b[^;{}()]*\{([^}]*)\}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")

_QUALIFIERS = (
    r"(?:(?:const|static|constexpr|unsigned|extern|inline|volatile|__launch_bounds__\s*\([^()]*\)"
    r"|__(?:device|host|global|shared|constant|forceinline|noinline|restrict|inline)__"
    r"|__restrict)\s+)*"
)
_OWN = re.compile(
    rf"(?:^|[(,;{{}}<>])\s*{_QUALIFIERS}(?P<type>[A-Za-z_][\w:]*)(?:<[^;(){{}}]*>)?"
    rf"(?:\s*[&*]+\s*|\s+){_QUALIFIERS}(?P<name>[A-Za-z_]\w*)\s*(?=[=;,){{\[:(])",
    re.MULTILINE,
)
# A further name of one declaration: `int rows = 4, cols = 8;`
_OWN_FURTHER = re.compile(r",\s*[&*]*\s*([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)?=(?!=)")
_NO_TYPE = frozenset(
    [
        *("return", "else", "delete", "new", "throw", "case", "goto", "using", "namespace"),
        *("typename", "and", "or", "not", "co_return", "co_yield"),
    ]
)
_KEYWORDS = frozenset(
    [
        *("alignas", "alignof", "auto", "bool", "break", "catch", "char", "class", "const"),
        *("constexpr", "consteval", "constinit", "continue", "decltype", "default", "do"),
        *("double", "enum", "explicit", "export", "extern", "final", "float", "for", "friend"),
        *("if", "inline", "int", "long", "mutable", "noexcept", "nullptr", "operator", "override"),
        *("private", "protected", "public", "register", "requires", "short", "signed", "sizeof"),
        *("static", "static_cast", "struct", "switch", "template", "this", "true", "false", "try"),
        *("typedef", "typeid", "union", "unsigned", "virtual", "void", "volatile", "while"),
        *("char8_t", "char16_t", "char32_t", "wchar_t", "concept", "const_cast", "dynamic_cast"),
        *("reinterpret_cast", "static_assert", "thread_local", "__attribute__"),
    ]
)


def names_declared_in(text: str) -> frozenset[str]:
    """Return the names that the preprocessed `text` may declare for the code that includes it."""
    found = {match["name"] for match in _FUNCTION.finditer(text) if match["before"] not in _NO_TYPE}
    found.update(_KIND.findall(text))
    for pair in _USING.findall(text):
        found.update(pair)
    found.update(_TYPEDEF.findall(text))
    found.update(_VARIABLE.findall(text))
    for enumerators in _ENUMERATORS.findall(text):
        found.update(_IDENTIFIER.findall(enumerators))
    # torch declares no public name of one letter: a match of one letter is a local variable.
    return frozenset(name for name in found - _KEYWORDS - _NO_TYPE if len(name) > 1)


def names_declared_by(code: str) -> frozenset[str]:
    """Return the names that a candidate's `code` declares: its functions, parameters and locals."""
    found = {match["name"] for match in _OWN.finditer(code) if match["type"] not in _NO_TYPE}
    return frozenset(found.union(_OWN_FURTHER.findall(code)))


def main(given: str, made: str) -> None:
    """Write to the file `made` the names that the file `given` declares (`text_process`)."""
    text = Path(given).read_text(encoding="utf-8", errors="surrogateescape")
    Path(made).write_text("\n".join(sorted(names_declared_in(text))), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
