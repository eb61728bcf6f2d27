"""The dtype of the tensors that kernels read and write; they compute in float in any case.

A half is a type `E` of its own, which converts from and to float: no header of CUDA or of a
compiler is needed, and the writers' text is the same for all dtypes but for the pointers' type.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from actors.agents.recipes.frontend.symbolic_values import UnsupportedSourceError

Element = Literal["float32", "float16", "bfloat16"]
HALVES = ("float16", "bfloat16")
_DTYPE = re.compile(r"\b([a-z]\w*)\[")
_FLOATING = re.compile(r"b?float\d+")

# bits -> float and float -> bits, rounded to the nearest, ties to even.
_CONVERSIONS = {
    "bfloat16": """\
  {FN}operator float() const {{
    const unsigned u = (unsigned)bits << 16;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
  }}
  {FN}E(float v) {{
    unsigned u;
    __builtin_memcpy(&u, &v, 4);
    const unsigned up = u + 0x7fffu + ((u >> 16) & 1u);
    bits = (unsigned short)((v != v ? u | 0x400000u : up) >> 16);
  }}""",
    "float16 cpp": """\
#if defined(__F16C__)
  operator float() const {{ return _cvtsh_ss(bits); }}
  E(float v) {{ bits = _cvtss_sh(v, 0); }}
#else
  operator float() const {{
    __fp16 h;
    __builtin_memcpy(&h, &bits, 2);
    return h;
  }}
  E(float v) {{
    const __fp16 h = v;
    __builtin_memcpy(&bits, &h, 2);
  }}
#endif""",
    "float16 cuda": """\
  {FN}operator float() const {{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
  }}
  {FN}E(float v) {{ asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }}""",
}
# W elements at once: the loop over lanes is not made into vector instructions by all compilers.
_CPP_VECTORS = {
    "bfloat16": """\
typedef unsigned short HS __attribute__((vector_size(2 * W)));
typedef unsigned HU __attribute__((vector_size(4 * W)));
FN V widened(const E *p) {
#if defined(__AVX512F__) && W == 16
  const __m256i h = _mm256_loadu_si256((const __m256i *)p);
  return (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
#else
  HS h;
  __builtin_memcpy(&h, p, sizeof h);
  return (V)(__builtin_convertvector(h, HU) << 16);
#endif
}
FN void narrowed(E *p, V v) {
#if defined(__AVX512BF16__) && W == 16
  const __m256bh h = _mm512_cvtneps_pbh((__m512)v);  // denormals become zero
#elif defined(__AVX512BF16__) && defined(__AVX512VL__) && W == 8
  const __m128bh h = _mm256_cvtneps_pbh((__m256)v);
#else
  const HU u = (HU)v, up = u + 0x7fffu + ((u >> 16) & 1u), wrong = (HU)(v != v);
  const HU bits = (wrong & (u | 0x400000u)) | (~wrong & up);
  const HS h = __builtin_convertvector(bits >> 16, HS);
#endif
  __builtin_memcpy(p, &h, sizeof h);
}
""",
    "float16": """\
#if defined(__F16C__) && W == 4
FN V widened(const E *p) { return (V)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)p)); }
FN void narrowed(E *p, V v) { _mm_storel_epi64((__m128i *)p, _mm_cvtps_ph((__m128)v, 0)); }
#elif defined(__F16C__)
FN V widened(const E *p) {
  V r;
  for (int l = 0; l < W; l += 8) {
    const __m256 part = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + l)));
    __builtin_memcpy((float *)&r + l, &part, sizeof part);
  }
  return r;
}
FN void narrowed(E *p, V v) {
  for (int l = 0; l < W; l += 8) {
    __m256 part;
    __builtin_memcpy(&part, (float *)&v + l, sizeof part);
    _mm_storeu_si128((__m128i *)(p + l), _mm256_cvtps_ph(part, 0));
  }
}
#else
FN V widened(const E *p) {
  V r = {};
  for (int l = 0; l < W; ++l) r[l] = p[l];
  return r;
}
FN void narrowed(E *p, V v) {
  for (int l = 0; l < W; ++l) p[l] = v[l];
}
#endif
""",
}
_CPP_ACCESS = """\
FN V load(const E *p, int live) {
  if (live == W) return widened(p);
  V r = {};
  for (int l = 0; l < live; ++l) r[l] = p[l];
  return r;
}
FN void store(E *p, V v, int live) {
  if (live == W) {
    narrowed(p, v);
    return;
  }
  for (int l = 0; l < live; ++l) p[l] = v[l];
}
FN V gather(const E *p, long step, int live) {
  V r = {};
  for (int l = 0; l < live; ++l) r[l] = p[l * step];
  return r;
}
FN V every_other(const E *p) {
  V r = {};
  for (int l = 0; l < W; ++l) r[l] = p[2 * l];
  return r;
}
FN void stream(E *p, V v, int live) { store(p, v, live); }"""
_CUDA_ACCESS = """\
template <int N> FN void pull(const E *p, float *to) {
  E some[N];
  if constexpr (N == 4) *(ushort4 *)some = *(const ushort4 *)p;
  else if constexpr (N == 2) *(ushort2 *)some = *(const ushort2 *)p;
  else some[0] = *p;
  for (int c = 0; c < N; ++c) to[c] = some[c];
}
template <int N> FN void push(E *p, const float *from) {
  E some[N];
  for (int c = 0; c < N; ++c) some[c] = from[c];
  if constexpr (N == 4) *(ushort4 *)p = *(const ushort4 *)some;
  else if constexpr (N == 2) *(ushort2 *)p = *(const ushort2 *)some;
  else *p = some[0];
}"""


def element_of(inputs: str) -> Element:
    """Return the dtype of a reference's floating inputs; raise where they have several.

    `inputs`: "bfloat16[64, 8], int64[64]"; "" and no floating input count as float32.
    """
    found = {name for name in _DTYPE.findall(inputs) if _FLOATING.fullmatch(name)}
    if len(found) > 1 and found & {*HALVES}:
        raise UnsupportedSourceError(
            f"the inputs are {' and '.join(sorted(found))}: the rule book writes for one dtype"
        )
    return next((element for element in get_args(Element) if element in found), "float32")


def read_as_float32(description: str, element: Element, what: str) -> str:
    """Return a description of tensors with float32 for their dtype, as the source is read."""
    if element == "float32":
        return description
    if "float32[" in description.replace(f"b{element}", ""):
        raise UnsupportedSourceError(
            f"{what} are float32 where the inputs are {element}: the rule book writes for one dtype"
        )
    return description.replace(f"{element}[", "float32[")


def element_text(element: Element, backend: str) -> str:
    """Return the text before the kernels that read and write `E`; "" for float32."""
    if element == "float32":
        return ""
    is_cuda = backend == "cuda"
    kind: str = element
    if element == "float16":
        kind = "float16 cuda" if is_cuda else "float16 cpp"
    qualifier = "__device__ __forceinline__ " if is_cuda else ""
    conversions = _CONVERSIONS[kind].format(FN=qualifier)
    default = f"  {qualifier}E() {{}}\n" if is_cuda else "  E() = default;\n"
    has_intrinsics = "#if defined(__F16C__) || defined(__AVX512F__)"
    include = "" if is_cuda else f"{has_intrinsics}\n#include <immintrin.h>\n#endif\n"
    alignment = "alignas(8) " if is_cuda else ""
    access = _CUDA_ACCESS if is_cuda else f"{_CPP_VECTORS[element]}{_CPP_ACCESS}"
    access = access.replace("  E some", f"  {alignment}E some")
    return (
        f"{include}struct E {{  // {element}\n  unsigned short bits;\n{default}{conversions}\n}};\n"
        f"{access}"
    )
