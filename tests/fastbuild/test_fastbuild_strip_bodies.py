"""Laws of the removal of function bodies from preprocessed text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.evaluator.fastbuild.headers.declared_names import names_declared_in
from actors.evaluator.fastbuild.nvcc import text_process
from actors.evaluator.fastbuild.nvcc.strip_bodies import strip_bodies
from actors.evaluator.fastbuild.request.compiler_process import Deadline


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
def test_the_body_of_an_ordinary_function_is_removed(text: str, left: str) -> None:
    """A declaration is left; nothing is left of a qualified name, which was declared before."""
    assert strip_bodies(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "constexpr int f() { return 1; }",
        "auto f() { return 1; }",
        "static int f() { return 1; }",
        "inline __attribute__((device)) int f() { return 1; }",
        "__attribute__((global)) void f() { }",
        "struct A { friend int f(A) { return 1; } };",
        "inline void* operator new(size_t, void* p) { return p; }",
        "inline void operator delete[](void*, void*) { }",
        "enum class E : int { a, b };",
        "int a[] = {1, 2}; std::vector<int> v{1, 2};",
        "auto f = [](int x) { return x; };",
        "template<class T, class = decltype(T())> struct A<T, void(T)> { int x; };",
        "template<class T> requires requires(T& t) { t.x(); } int f(T& t) { return t.x(); }",
        "template<class T> concept C = requires { typename T::x; };",
        "template<class T> requires C<T> int f(T& t) { return t.x(); }",
    ],
)
def test_what_a_compiler_evaluates_keeps_its_body(text: str) -> None:
    """Constants, deduced types, device code, classes and initializers are needed."""
    assert strip_bodies(text) == text


def test_bodies_of_templates_are_removed() -> None:
    """Code that uses one is compiled with the whole text."""
    text = "template<class F> void each(F f) { f(1); } template<class T> struct A { void g() { } };"
    left = "template<class F> void each(F f) ; template<class T> struct A { void g() ; };"
    assert strip_bodies(text) == left


def test_files_whose_bodies_stay() -> None:
    """cicc must read which kernels thrust::sort launches; the other headers give it nothing."""
    text = """# 1 "/usr/include/c++/12/algorithm" 1 3
template<class T> void a(T t) { }
# 1 "/usr/local/cuda/include/cccl/thrust/sort.h" 1 3
template<class T> void sort(T t) { launch(t); }
inline void b() { }
# 9 "/usr/include/c++/12/algorithm" 2 3
inline void c() { }
"""
    stripped = strip_bodies(text, re.compile("/(?:cccl|thrust)/"))

    assert "launch(t)" in stripped
    assert "void b() { }" in stripped
    assert "void a(T t) ;" in stripped
    assert "void c() ;" in stripped


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
def test_every_line_keeps_its_number(text: str) -> None:
    """For every text, C++ or not: error messages and line tables count its lines."""
    for whole_files in (None, re.compile("f")):
        assert strip_bodies(text, whole_files).count("\n") == text.count("\n")


def test_a_process_of_its_own_makes_the_same_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of one Python waited for each other, on 16 cores, while ten flag sets were read."""
    text = '# 1 "/x/cub/a.h"\nint f() { return 1; }\n# 1 "/x/b.h"\nint g() { return 2; }\n\udcff\n'
    patterns = (None, re.compile("/cub/"))
    expected = [strip_bodies(text, each) for each in patterns]
    names = names_declared_in(text)
    monkeypatch.setattr(text_process.strip_bodies, "strip_bodies", None)
    monkeypatch.setattr(text_process.declared_names, "names_declared_in", None)
    deadline = Deadline(60.0)
    assert expected == [text_process.text_without_bodies(text, each, deadline) for each in patterns]
    assert names == text_process.names_declared(text, deadline)
