"""The functions that kernels call, in C++ on vectors of floats and in CUDA on floats.

The C++ functions are our own fits, with errors of about one unit in the last place against float64
(tested in tests/recipes).  So they need no header, no fast-math flag and no vector maths library,
and NaN and infinity stay what they are.  A kernel's source has only the functions that it uses.
"""

from __future__ import annotations

import re

VECTOR_CORE = """\
typedef float V __attribute__((vector_size(4 * W)));
typedef int VI __attribute__((vector_size(4 * W)));
typedef float VU __attribute__((vector_size(4 * W), aligned(4), may_alias));
#define FN static inline __attribute__((always_inline))
FN V K(float c) { return c - V{}; }
FN V load(const float *p, int live) {
  if (live == W) return *(const VU *)p;
  V r = {};
  for (int l = 0; l < live; ++l) r[l] = p[l];
  return r;
}
FN void store(float *p, V v, int live) {
  if (live == W) { *(VU *)p = v; return; }
  for (int l = 0; l < live; ++l) p[l] = v[l];
}"""

# name -> (C++ text, names it uses).  W lanes; VI is the integer twin of V.
VECTOR_FUNCTIONS: dict[str, str] = {
    "gather": """\
FN V gather(const float *p, long step, int live) {
  V r = {};
  for (int l = 0; l < live; ++l) r[l] = p[l * step];
  return r;
}""",
    "every_other": """\
FN V every_other(const float *p) {
  V r;
  for (int l = 0; l < W; ++l) r[l] = p[2 * l];
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
  const V a = load(p, W), b = load(p + W, W);
  r = __builtin_shufflevector(a, b, EVENS);
#endif
#endif
  return r;
}""",
    "stream": """\
FN void stream(float *p, V v, int live) {
  if (live != W) { store(p, v, live); return; }
#if defined(__clang__)
  __builtin_nontemporal_store(v, (V *)p);
#elif defined(__AVX512F__) && W == 16
  __builtin_ia32_movntps512(p, v);
#elif defined(__AVX__) && W == 8
  __builtin_ia32_movntps256(p, v);
#elif defined(__SSE__) && W == 4
  __builtin_ia32_movntps(p, v);
#else
  store(p, v, live);
#endif
}
FN void settle() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}""",
    "keep": """\
FN V keep(V v, int live, float other) {
  if (live == W) return v;
  for (int l = live; l < W; ++l) v[l] = other;
  return v;
}""",
    "abs_": "FN V abs_(V x) { return (V)((VI)x & 0x7fffffff); }",
    "sign_of": "FN VI sign_of(V x) { return (VI)x & (int)0x80000000; }",
    "maximum": "FN V maximum(V a, V b) { return (a > b) | (a != a) ? a : b; }",
    "minimum": "FN V minimum(V a, V b) { return (a < b) | (a != a) ? a : b; }",
    "relu": "FN V relu(V x) { return x < 0.0f ? K(0.0f) : x; }",
    "sqrt_": """\
FN V sqrt_(V x) {
  V r;
  for (int l = 0; l < W; ++l) r[l] = __builtin_sqrtf(x[l]);
  return r;
}""",
    "rsqrt_": "FN V rsqrt_(V x) { return 1.0f / sqrt_(x); }",
    "floor_": """\
FN V floor_(V x) { V r; for (int l = 0; l < W; ++l) r[l] = __builtin_floorf(x[l]); return r; }""",
    "ceil_": """\
FN V ceil_(V x) { V r; for (int l = 0; l < W; ++l) r[l] = __builtin_ceilf(x[l]); return r; }""",
    "round_": """\
FN V round_(V x) { V r; for (int l = 0; l < W; ++l) r[l] = __builtin_rintf(x[l]); return r; }""",
    "trunc_": """\
FN V trunc_(V x) { V r; for (int l = 0; l < W; ++l) r[l] = __builtin_truncf(x[l]); return r; }""",
    "sin_": """\
FN V sin_(V x) { V r; for (int l = 0; l < W; ++l) r[l] = __builtin_sinf(x[l]); return r; }""",
    "cos_": """\
FN V cos_(V x) { V r; for (int l = 0; l < W; ++l) r[l] = __builtin_cosf(x[l]); return r; }""",
    "sign_": """\
FN V sign_(V x) { return x > 0.0f ? K(1.0f) : (x < 0.0f ? K(-1.0f) : x); }""",
    "exp_": """\
FN V exp_(V x) {
  x = x < -104.0f ? K(-104.0f) : x;
  x = x > 89.0f ? K(89.0f) : x;
  const V t = x * 1.44269504088896341f + 12582912.0f;
  const V n = t - 12582912.0f;
  const V r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
  V p = 0.00139506006f + V{};
  p = p * r + 0.00836895371f;
  p = p * r + 0.0416662042f;
  p = p * r + 0.166665183f;
  p = p * r + 0.50000001f;
  p = p * (r * r) + r;
  p = p + 1.0f;
#if defined(__AVX512F__) && W == 16 && !defined(__clang__)
  return __builtin_ia32_scalefps512_mask(p, n, p, -1, 4);  // p times two to the n
#else
  const VI i = (VI)t - 0x4b400000, h = i >> 1;  // in two steps: one would leave floats' range
  return p * (V)((h + 127) << 23) * (V)((i - h + 127) << 23);
#endif
}""",
    "expm1_": """\
FN V expm1_(V x) {
  V p = 2.49702544e-5f + V{};
  p = p * x + 0.000199740202f;
  p = p * x + 0.00138885434f;
  p = p * x + 0.00833314075f;
  p = p * x + 0.0416666693f;
  p = p * x + 0.166666675f;
  p = p * x + 0.5f;
  const V near = p * (x * x) + x;
  return abs_(x) < 0.5f ? near : exp_(x) - 1.0f;
}""",
    "log_": """\
FN V log_(V x) {
  const VI tiny = x < 1.17549435e-38f;
  const V y = tiny ? x * 33554432.0f : x;
  const VI i = (VI)y - 0x3f3504f3;
  const VI e = i >> 23;
  const V f = (V)((VI)y - (e << 23)) - 1.0f;
  V n = __builtin_convertvector(e, V);
  n = tiny ? n - 25.0f : n;
  V p = 0.0691536807f + V{};
  p = p * f - 0.117898077f;
  p = p * f + 0.11872976f;
  p = p * f - 0.123843485f;
  p = p * f + 0.142186581f;
  p = p * f - 0.166692508f;
  p = p * f + 0.200022266f;
  p = p * f - 0.249999866f;
  p = p * f + 0.333333104f;
  const V z = f * f;
  V r = p * (f * z) + n * 1.42860682030941723e-6f;
  r = r - 0.5f * z;
  r = (r + f) + n * 0.693145751953125f;
  r = x == __builtin_inff() ? x : r;
  r = x == 0.0f ? K(-__builtin_inff()) : r;
  return (x < 0.0f) | (x != x) ? K(__builtin_nanf("")) : r;
}""",
    "log1p_": """\
FN V log1p_(V x) {
  const V u = 1.0f + x, d = u - 1.0f;
  const V r = log_(u) * (x / d);
  return (d == 0.0f) | (x == __builtin_inff()) ? x : r;
}""",
    "tanh_": """\
FN V tanh_(V x) {
  const V z = x * x;
  V p = -0.00571703657f + V{};
  p = p * z + 0.0206505791f;
  p = p * z - 0.0537434953f;
  p = p * z + 0.133314912f;
  p = p * z - 0.333332839f;
  const V near = p * (z * x) + x;
  const V a = abs_(x);
  const V far = 1.0f - 2.0f / (exp_(a + a) + 1.0f);
  return a < 0.625f ? near : (V)((VI)far | sign_of(x));
}""",
    "erf_": """\
FN V erf_(V x) {
  const V z = x * x;
  V p = 7.88911953e-5f + V{};
  p = p * z - 0.000802084128f;
  p = p * z + 0.00518953534f;
  p = p * z - 0.0268544446f;
  p = p * z + 0.112836002f;
  p = p * z - 0.376126271f;
  p = p * z + 0.128379167f;
  const V near = p * x + x;
  V a = abs_(x);
  a = a > 4.0f ? K(4.0f) : a;
  V q = -2.11619063e-5f + V{};
  q = q * a + 0.000435218882f;
  q = q * a - 0.00417464301f;
  q = q * a + 0.0251286246f;
  q = q * a - 0.108293947f;
  q = q * a - 0.633334653f;
  q = q * a - 1.12952082f;
  q = q * a + 0.000175874558f;
  const V far = 1.0f - exp_(q);
  return abs_(x) < 0.96f ? near : (V)((VI)far | sign_of(x));
}""",
    "sigmoid": "FN V sigmoid(V x) { return 1.0f / (1.0f + exp_(-x)); }",
    "silu": "FN V silu(V x) { return x / (1.0f + exp_(-x)); }",
    "gelu": "FN V gelu(V x) { return 0.5f * x * (1.0f + erf_(x * 0.707106781186547524f)); }",
    "gelu_tanh": """\
FN V gelu_tanh(V x) {
  const V u = 0.797884560802865356f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.0f + tanh_(u));
}""",
    "softplus": "FN V softplus(V x) { return x > 20.0f ? x : log1p_(exp_(x)); }",
    "mish": """\
FN V mish(V x) {
  const V e = exp_(x > 20.0f ? K(20.0f) : x);
  const V n = e * (e + 2.0f);
  return x > 20.0f ? x : x * (n / (n + 2.0f));
}""",
    "finite_or_zero": """\
FN V finite_or_zero(V x) { return abs_(x) == __builtin_inff() ? K(0.0f) : x; }""",
    "across_sum": """\
FN float across_sum(V v) { float s = 0; for (int l = 0; l < W; ++l) s += v[l]; return s; }""",
    "across_max": """\
FN float across_max(V v) {
  float m = v[0];
  for (int l = 1; l < W; ++l) m = (m > v[l]) | (m != m) ? m : v[l];
  return m;
}""",
    "across_min": """\
FN float across_min(V v) {
  float m = v[0];
  for (int l = 1; l < W; ++l) m = (m < v[l]) | (m != m) ? m : v[l];
  return m;
}""",
}

# The same functions with an error larger by a few units in the last place, at half the work.
FAST_VECTOR_FUNCTIONS: dict[str, str] = {
    "tanh_": """\
FN V tanh_(V x) {
  const V a = abs_(x);
  const V y = a > 9.01f ? K(9.01f) : x;
  const V z = y * y;
  V p = 1.3336867e-08f + V{};
  p = p * z + 2.05962894e-05f;
  p = p * z + 0.00349481207f;
  p = p * z + 0.133803725f;
  p = p * z + 0.999999979f;
  V q = 7.76929131e-07f + V{};
  q = q * z + 0.000328436484f;
  q = q * z + 0.0258740307f;
  q = q * z + 0.467136879f;
  q = q * z + 1.0f;
  const V one = (V)((VI)K(1.0f) | sign_of(x));
  return a > 9.01f ? one : (y * p) / q;
}""",
    "erf_": """\
FN V erf_(V x) {
  const V a = abs_(x);
  const V y = a > 3.925f ? K(3.925f) : x;
  const V z = y * y;
  V p = 2.04601762e-06f + V{};
  p = p * z + 0.000284844589f;
  p = p * z + 0.00377260014f;
  p = p * z + 0.0527694542f;
  p = p * z + 0.190594927f;
  p = p * z + 1.12837915f;
  V q = 3.80477287e-05f + V{};
  q = q * z + 0.00116386974f;
  q = q * z + 0.0149832989f;
  q = q * z + 0.114183207f;
  q = q * z + 0.502243087f;
  q = q * z + 1.0f;
  const V one = (V)((VI)K(1.0f) | sign_of(x));
  return a > 3.925f ? one : (y * p) / q;
}""",
}

SCALAR_CORE = """\
typedef float V;
#define FN static __device__ __forceinline__
FN V K(float c) { return c; }"""

SCALAR_FUNCTIONS: dict[str, str] = {
    "abs_": "FN V abs_(V x) { return fabsf(x); }",
    "maximum": "FN V maximum(V a, V b) { return (a > b) | (a != a) ? a : b; }",
    "minimum": "FN V minimum(V a, V b) { return (a < b) | (a != a) ? a : b; }",
    "relu": "FN V relu(V x) { return x < 0.0f ? 0.0f : x; }",
    "sqrt_": "FN V sqrt_(V x) { return sqrtf(x); }",
    "rsqrt_": "FN V rsqrt_(V x) { return 1.0f / sqrtf(x); }",
    "floor_": "FN V floor_(V x) { return floorf(x); }",
    "ceil_": "FN V ceil_(V x) { return ceilf(x); }",
    "round_": "FN V round_(V x) { return rintf(x); }",
    "trunc_": "FN V trunc_(V x) { return truncf(x); }",
    "sin_": "FN V sin_(V x) { return sinf(x); }",
    "cos_": "FN V cos_(V x) { return cosf(x); }",
    "sign_": "FN V sign_(V x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x); }",
    "exp_": "FN V exp_(V x) { return expf(x); }",
    "expm1_": "FN V expm1_(V x) { return expm1f(x); }",
    "log_": "FN V log_(V x) { return logf(x); }",
    "log1p_": "FN V log1p_(V x) { return log1pf(x); }",
    "tanh_": "FN V tanh_(V x) { return tanhf(x); }",
    "erf_": "FN V erf_(V x) { return erff(x); }",
    **{
        name: VECTOR_FUNCTIONS[name]
        for name in ("sigmoid", "silu", "gelu", "gelu_tanh", "softplus", "mish", "finite_or_zero")
    },
}
SCALAR_FUNCTIONS["finite_or_zero"] = "FN V finite_or_zero(V x) { return isinf(x) ? 0.0f : x; }"

# operation of the graph -> how a kernel writes it
OPERATION_FORMS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "gt": "{0} > {1}",
    "lt": "{0} < {1}",
    "ge": "{0} >= {1}",
    "le": "{0} <= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "NOT({0})",
    "neg": "-{0}",
    "reciprocal": "1.0f / {0}",
    "where": "{0} ? {1} : {2}",
    "to_float": "{0} ? K(1.0f) : K(0.0f)",
    **{
        op: f"{op}_({{0}})"
        for op in ("abs", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "erf", "sin",
                   "cos", "floor", "ceil", "round", "trunc", "sign")
    },
    **{
        op: f"{op}({{0}})"
        for op in ("sigmoid", "relu", "silu", "gelu", "gelu_tanh",
                   "softplus", "mish", "finite_or_zero")
    },
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
}  # fmt: skip


def literal(value: float) -> str:
    """A float constant in C++."""
    if value != value:
        return '__builtin_nanf("")'
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}__builtin_inff()"
    text = repr(float(value))
    text = text if "." in text or "e" in text else text + ".0"
    return f"({text}f)" if value < 0 else f"{text}f"


def functions_used(body: str, table: dict[str, str]) -> list[str]:
    """The functions that the text calls, and those that they call, in the table's order."""
    wanted: set[str] = set()
    todo = [body]
    while todo:
        identifiers = set(re.findall(r"[a-z_0-9]+", todo.pop()))
        for name in identifiers & table.keys() - wanted:
            wanted.add(name)
            todo.append(table[name])
    return [name for name in table if name in wanted]


def prelude(body: str, lanes: int | None, *, quick: bool = False) -> str:
    """The text before the kernels: vector functions for this many lanes; None: CUDA's functions."""
    if lanes is None:
        parts = [SCALAR_CORE, "#define NOT(m) (!(m))"]
        table = SCALAR_FUNCTIONS
    else:
        evens = f"#define EVENS {', '.join(str(2 * lane) for lane in range(lanes))}"
        parts = [
            f"#define W {lanes}",
            *([evens] if "every_other(" in body else []),
            VECTOR_CORE,
            "#define NOT(m) (~(m))",
        ]
        table = VECTOR_FUNCTIONS | FAST_VECTOR_FUNCTIONS if quick else VECTOR_FUNCTIONS
    return "\n".join(parts + [table[name] for name in functions_used(body, table)])
