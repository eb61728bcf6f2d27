"""Laws of taking functions' bodies out of preprocessed text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.fastbuild.strip_bodies import strip_bodies


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("inline int f(int a) { return a; }", " int f(int a) ;"),
        ("struct A { A() : x(1), y{2} { g(); } int x, y; };", "struct A { A() ; int x, y; };"),
        ("struct A : B<int> { ~A() { g(); } };", "struct A : B<int> { ~A() ; };"),
        ("struct A { void f() const noexcept { } };", "struct A { void f() const noexcept ; };"),
        ("void A::f() { } int x;", " int x;"),
        ("inline bool A::operator==(A b) const { return b; } int x;", " int x;"),
        (
            'namespace a { extern "C" { void f() { } } }',
            'namespace a { extern "C" { void f() ; } }',
        ),
        ("void f() { char c = '}'; s = \"}\"; } int x;", "void f() ; int x;"),
    ],
)
def test_an_ordinary_functions_body_goes(text: str, left: str) -> None:
    """A declaration stays, and nothing where it was declared before: else it would be refused."""
    assert strip_bodies(text, templates=False) == left


@pytest.mark.parametrize(
    "text",
    [
        "constexpr int f() { return 1; }",
        "auto f() { return 1; }",
        "static int f() { return 1; }",
        "inline __attribute__((device)) int f() { return 1; }",
        "__attribute__((global)) void f() { }",
        "struct A { friend int f(A) { return 1; } };",
        "enum class E : int { a, b };",
        "int a[] = {1, 2}; std::vector<int> v{1, 2};",
        "auto f = [](int x) { return x; };",
        "template<class T, class = decltype(T())> struct A<T, void(T)> { int x; };",
    ],
)
def test_what_may_be_asked_for_while_compiling_stays(text: str) -> None:
    """Constants, deduced types, device code, classes and values would be missed."""
    assert strip_bodies(text, templates=True) == text


def test_templates_go_only_where_they_do_not_become_code() -> None:
    """cicc has to see which kernels a template's body launches."""
    text = "template<class F> void each(F f) { f(1); } template<class T> struct A { void g() { } };"

    assert strip_bodies(text, templates=False) == text
    left = "template<class F> void each(F f) ; template<class T> struct A { void g() ; };"
    assert strip_bodies(text, templates=True) == left


@given(
    st.lists(
        st.sampled_from(
            [
                "{",
                "}",
                "(",
                ")",
                "[",
                "<",
                ">",
                ";",
                ":",
                "=",
                "\n",
                "x ",
                "template",
                "operator",
                "struct ",
                '# 1 "f"\n',
                '"',
                "'",
                "~",
                "::",
            ]
        )
    ).map("".join)
)
def test_every_line_stays_where_it_is(text: str) -> None:
    """Whatever the text, even none of C++: messages and line tables count its lines."""
    for templates in (False, True):
        assert strip_bodies(text, templates=templates).count("\n") == text.count("\n")
