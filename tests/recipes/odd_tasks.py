"""Unusual but legal task files, each with a name that says what is unusual about it.

Each task in `READ` is understood: it gets a candidate with kernels.  Each task in `REFUSED` is
refused, and the refusal has to contain the texts beside it.
"""

from __future__ import annotations

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
INIT = "\ndef get_init_inputs():\n    return []\n"
X = "\ndef get_inputs():\n    return [torch.randn(16, 64)]\n" + INIT
PAIR = "\ndef get_inputs():\n    return [torch.randn(16, 64), torch.randn(16, 64)]\n" + INIT


def model(forward: str, init: str = "pass", takes: str = "x", base: str = "nn.Module") -> str:
    """A class Model."""
    made = "".join(f"        {line}\n" for line in init.splitlines())
    body = "".join(f"        {line}\n" for line in forward.splitlines())
    return (
        f"class Model({base}):\n    def __init__(self):\n        super().__init__()\n{made}"
        f"\n    def forward(self, {takes}):\n{body}"
    )


GATED = (
    "class GatedBlock(nn.Module):\n    def __init__(self, width=64):\n"
    "        super(GatedBlock, self).__init__()\n        self.up = nn.Linear(width, width)\n\n"
    "    def forward(self, x):\n        return torch.sigmoid(self.up(x)) * x\n\n"
)
READ: dict[str, str] = {
    "Model is another name of a class": HEAD + GATED + "Model = GatedBlock\n" + X,
    "Model inherits all": HEAD + GATED + "class Model(GatedBlock):\n    pass\n" + X,
    "Model inherits its forward": HEAD + GATED
    + "class Model(GatedBlock):\n    def __init__(self):\n        super().__init__(64)\n"
    "        self.scale = 2.0\n" + X,
    "Model calls its base's forward": HEAD + GATED
    + "class Model(GatedBlock):\n    def forward(self, x):\n"
    "        return super().forward(x) * 2.0 + 1.0\n" + X,
    "the forward is assigned": HEAD
    + "def gate(self, x):\n    return torch.sigmoid(x) * x * self.scale\n\n"
    + model("raise NotImplementedError", "self.scale = 0.5") + "\nModel.forward = gate\n" + X,
    "a mixin": HEAD
    + "class Scaled:\n    factor = 3.0\n\n    def scale(self, x):\n"
    "        return x * self.factor\n\n"
    + model("return self.scale(torch.tanh(x))", base="Scaled, nn.Module") + X,
    "self has another name": HEAD
    + "class Model(nn.Module):\n    def __init__(this, width):\n        super().__init__()\n"
    "        this.w = nn.Parameter(torch.ones(width))\n\n    def forward(this, x):\n"
    "        return torch.tanh(x * this.w) + 1\n"
    "\ndef get_inputs():\n    return [torch.randn(16, 64)]\n"
    "\ndef get_init_inputs():\n    return [64]\n",
    "a dict of constants": HEAD + 'CONFIG = {"scale": 2.0, "shift": [1.0, 3.0]}\n'
    + model('return torch.exp(-x * CONFIG["scale"]) + CONFIG["shift"][1]') + X,
    "a dict that the file changes": HEAD + 'CONFIG = {"scale": 2.0}\nCONFIG["scale"] = 3.0\n'
    "CONFIG.update({'shift': 1.0})\n"
    + model('return torch.exp(-x * CONFIG["scale"]) + CONFIG["shift"]') + X,
    "a dataclass of settings": "from dataclasses import dataclass\n" + HEAD
    + "@dataclass\nclass Config:\n    width: int = 64\n    eps: float = 1e-3\n\n"
    "class Model(nn.Module):\n    def __init__(self, cfg: Config):\n        super().__init__()\n"
    "        self.cfg = cfg\n        self.w = nn.Parameter(torch.ones(cfg.width))\n\n"
    "    def forward(self, x):\n"
    "        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.cfg.eps) * self.w\n"
    "\ndef get_inputs():\n    return [torch.randn(16, 64)]\n"
    "\ndef get_init_inputs():\n    return [Config(eps=1e-4)]\n",
    "names from everywhere": "from math import *\nimport math as m\n" + HEAD
    + model("return torch.exp(x / sqrt(2.0)) * m.pi + e") + X,
    "imports in the forward": HEAD
    + model("import math\nfrom torch.nn import functional as FF\nreturn FF.gelu(x) * math.sqrt(2)")
    + X,
    "an import in a try": "try:\n    import numpy as np\nexcept ImportError:\n    np = None\n"
    + HEAD
    + model("return torch.tanh(x) * 2 + 1") + X,
    "constants in an if": HEAD + "if torch.cuda.is_available():\n    SCALE = 2.0\nelse:\n"
    "    SCALE = 3.0\n" + model("return torch.tanh(F.hardtanh(x)) + torch.add(x, SCALE)") + X,
    "a trial of itself": HEAD + model("return F.silu(x) + x") + X
    + 'm = Model(*get_init_inputs())\nout = m(*get_inputs())\nassert out is not None\n'
    'if __name__ == "__main__":\n    print(out)\n',
    "a trial of itself in a call": HEAD + model("return F.silu(x) + x") + X
    + "print(Model()(get_inputs()[0]).shape)\n",
    "a seed": HEAD + "torch.manual_seed(0)\n" + model("return F.silu(x) + x") + X,
    "a comprehension": HEAD
    + model("parts = [x * i for i in range(3) if i != 1]\nreturn torch.tanh(parts[0] + parts[1])")
    + X,
    "a comprehension of modules": HEAD
    + model("for i, layer in enumerate(self.layers):\n    x = F.relu(layer(x)) + i\nreturn x",
            "self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(2)])") + X,
    "a closure": HEAD
    + model("s = 2.0\ndef inner(y):\n    return torch.tanh(y) * s\nreturn inner(x) + inner(x * 2)")
    + X,
    "a lambda": HEAD + "act = lambda y: y * torch.sigmoid(1.702 * y)\n"
    + model("return act(x) + self.g(x)", "self.g = lambda z: torch.exp(-z * z)") + X,
    "an f-string and getattr": HEAD
    + model("for i in range(2):\n    x = torch.tanh(x * getattr(self, f'w{i}'))\nreturn x",
            "for i in range(2):\n"
            "    self.register_parameter(f'w{i}', nn.Parameter(torch.ones(64)))")
    + X,
    "a walrus": HEAD + model("return (y := torch.tanh(x)) * y + (y - 1.0)") + X,
    "`or` gives a value": HEAD
    + "class Model(nn.Module):\n    def __init__(self, hidden=None, eps=0):\n"
    "        super().__init__()\n        hidden = hidden or 64\n"
    "        self.eps = eps or 1e-3\n        self.w = nn.Parameter(torch.ones(hidden))\n\n"
    "    def forward(self, x):\n        return torch.tanh(x * self.w) + self.eps\n" + X,
    "a keyword-only argument with a default": HEAD
    + model("return torch.tanh(x) * scale if flag else x",
            takes="x, *, scale=2.0, flag=True, mask=None") + X,
    "a default that is not given": HEAD
    + model("if mask is not None:\n    x = x + mask\nreturn torch.tanh(x) * scale",
            takes="x, scale: float = 2.0, mask=None") + X,
    "numbers, flags and words as inputs": HEAD
    + model("y = torch.softmax(x * s, dim=d)\nif flag and mode == 'a':\n    y = y + n\nreturn y",
            takes="x, s, d, flag, mode, n")
    + "\ndef get_inputs():\n    return [torch.randn(16, 64), 0.5, -1, True, 'a', 3]\n" + INIT,
    "a dict of tensors": HEAD
    + model('return torch.tanh(batch["q"] * batch["k"]) + 1.0', takes="batch")
    + '\ndef get_inputs():\n    return [{"q": torch.randn(16, 64), "k": torch.randn(16, 64)}]\n'
    + INIT,
    "a list of tensors": HEAD
    + model("a, b = pair\nreturn torch.tanh(a) * b + pair[0]", takes="pair")
    + "\ndef get_inputs():\n    return [[torch.randn(16, 64), torch.randn(16, 64)]]\n" + INIT,
    "any number of tensors": HEAD
    + model("a, b = xs\nreturn torch.tanh(a) * torch.sigmoid(b)", takes="*xs") + PAIR,
    "a dict as the result": HEAD
    + model('return {"a": torch.tanh(x), "b": torch.exp(-x * x)}') + X,
    "a list and tuples as the result": HEAD
    + model("a, b = x.chunk(2, dim=-1)\nreturn [torch.tanh(a), (torch.exp(-b * b), a * b)]") + X,
    "buffers and integers beside": HEAD
    + model("return torch.tanh(x * self.scale) + self.table[i]",
            "self.register_buffer('scale', torch.full((64,), 0.5))\n"
            "self.register_buffer('table', torch.randn(10, 64))", takes="x, i")
    + "\ndef get_inputs():\n    return [torch.randn(16, 64), torch.randint(0, 10, (16,))]\n" + INIT,
    "numbers without a dimension": HEAD
    + model("return torch.tanh(x * self.a) * self.b.exp() + self.c",
            "self.a = nn.Parameter(torch.tensor(0.5))\nself.b = nn.Parameter(torch.zeros(1))\n"
            "self.c = nn.Parameter(torch.ones(()))") + X,
    "a tensor of the file's own": HEAD + "BIAS = torch.ones(64)\n"
    + model("return torch.tanh(x + BIAS) * x") + X,
    "reshapes like einops": HEAD
    + model("b, d = x.shape\nh = x.view(b, 4, d // 4).transpose(1, 2).contiguous()\n"
            "return torch.tanh(h).reshape(b, -1) * x.unsqueeze(1).expand(-1, 3, -1).sum(1)") + X,
    "a norm of its own": HEAD
    + "class LayerNorm(nn.Module):\n    def __init__(self, n, eps=1e-6):\n"
    "        super().__init__()\n        self.g = nn.Parameter(torch.ones(n))\n"
    "        self.b = nn.Parameter(torch.zeros(n))\n        self.eps = eps\n\n"
    "    def forward(self, x):\n        u = x.mean(-1, keepdim=True)\n"
    "        s = (x - u).pow(2).mean(-1, keepdim=True)\n"
    "        return (x - u) / torch.sqrt(s + self.eps) * self.g + self.b\n\n"
    + model("return x + self.drop(self.norm(x))",
            "self.norm = LayerNorm(64)\nself.drop = nn.Dropout(0.0)") + X,
    "a class inside of a class": HEAD
    + "class Model(nn.Module):\n    class Scale(nn.Module):\n"
    "        def forward(self, x):\n            return x * 2.0\n\n"
    "    def __init__(self):\n        super().__init__()\n        self.s = Model.Scale()\n\n"
    "    def forward(self, x):\n        return torch.tanh(x) + self.s(x)\n" + X,
    "a property and a static method": HEAD
    + "class Model(nn.Module):\n    gain = 2.0\n\n    def __init__(self):\n"
    "        super().__init__()\n        self.w = 0.5\n\n    @property\n    def twice(self):\n"
    "        return self.w * 2 * self.gain\n\n    @staticmethod\n    def act(y):\n"
    "        return torch.tanh(y)\n\n    def forward(self, x):\n"
    "        return self.act(x) * self.twice + Model.act(x)\n" + X,
    "a constructor in pieces": HEAD
    + "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self._build(64)\n        self.reset()\n\n    def _build(self, n):\n"
    "        self.w = nn.Parameter(torch.empty(n))\n\n    def reset(self):\n"
    "        self.w.data.fill_(0.5)\n\n    def forward(self, x):\n"
    "        return torch.tanh(x * self.w)\n" + X,
    "annotations that are not there": "from __future__ import annotations\n"
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from x import Thing\n" + HEAD
    + model("return torch.tanh(x) * 2", takes="x: Thing") + X,
    "a residual and an activation in place": HEAD
    + model("y = self.act(self.up(x))\nz = y.clone()\nreturn torch.tanh(z) + x",
            "self.up = nn.Linear(64, 64)\nself.act = nn.ReLU(inplace=True)") + X,
    "functions that take functions": HEAD
    + "def twice(f, x):\n    return f(f(x))\n\ndef act(x, slope=0.1):\n"
    "    return F.leaky_relu(x, negative_slope=slope)\n\n"
    + model("return twice(act, x) + twice(torch.tanh, x)") + X,
    "an activation by name": HEAD
    + 'ACTS = {"gelu": nn.GELU, "silu": nn.SiLU}\nFUNS = dict(tanh=torch.tanh)\n'
    + model("return self.act(x) * torch.sigmoid(x)", 'self.act = ACTS["gelu"]()') + X,
    "keyword arguments from a dict": HEAD
    + model("return F.softmax(x, **self.kw) * x", "self.kw = {'dim': -1}") + X,
    "no constructor at all": HEAD
    + "class Model(nn.Module):\n    def forward(self, x):\n        return torch.tanh(x) * x\n" + X,
    "a constructor with *args": HEAD
    + "class Model(nn.Module):\n    def __init__(self, *args, **kwargs):\n"
    "        super().__init__()\n        self.n = args[0]\n\n    def forward(self, x):\n"
    "        return torch.tanh(x) * self.n\n"
    "\ndef get_inputs():\n    return [torch.randn(16, 64)]\n"
    "\ndef get_init_inputs():\n    return [2.0]\n",
    "an autograd function": HEAD
    + "class Swish(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
    "        ctx.save_for_backward(x)\n        return x * torch.sigmoid(x)\n\n"
    "    @staticmethod\n    def backward(ctx, g):\n        return g\n\n"
    + model("return torch.tanh(x) * 2 + 0 * Swish.apply(x).sum()") + X,
    "a name that is used twice": HEAD
    + "def f(x):\n    return x * 2\n\n"
    + model("f = torch.tanh(x)\nfor f in [f, f * 2]:\n    x = x + f\nreturn x") + X,
    "no_grad in the forward": HEAD
    + model("with torch.no_grad():\n    y = torch.tanh(x)\nreturn y * 2") + X,
    "a starred result": HEAD
    + model("a, *rest = x.split(16, dim=-1)\n"
            "return torch.tanh(a) + sum(r.exp() for r in rest)") + X,
    "sum of a list": HEAD
    + model("return torch.tanh(sum([x, x * 2, x - 1]))") + X,
    "another library spelt its own way": "import fractions as fr\n" + HEAD
    + model("return torch.tanh(x) + x.sin(), x * float(fr.Fraction(2, 1))") + X,
    "bases in Python's order": HEAD
    + "class A(nn.Module):\n    def f(self, x):\n        return x + 1\n\n"
    "class B(A):\n    def f(self, x):\n        return super().f(x) * 2\n\n"
    "class C(A):\n    def f(self, x):\n        return super().f(x) - 3\n\n"
    "class Model(B, C):\n    def forward(self, x):\n        return torch.tanh(self.f(x))\n" + X,
    "an enum": "from enum import Enum\n" + HEAD
    + "class Kind(Enum):\n    A = 1\n    B = 2\n\n"
    "class Model(nn.Module):\n    def __init__(self, kind=Kind.A):\n        super().__init__()\n"
    "        self.kind = kind\n\n    def forward(self, x):\n"
    "        return torch.tanh(x) * (2 if self.kind == Kind.A else 3)\n" + X,
    "views of slices": HEAD
    + model("q, k = self.up(x).split(64, dim=-1)\nq = q.contiguous().view(16, 4, 16)\n"
            "return torch.softmax(q @ k.reshape(16, 4, 16).transpose(1, 2), dim=-1) * 2",
            "self.up = nn.Linear(64, 128)") + X,
    "booleans that PyTorch needs": HEAD
    + model("m = (x > 0.5) & (x < 2.0)\nw = m.logical_not()\n"
            "return torch.tanh(x).masked_fill(w, 0.0), torch.cumsum(m, 1) + 0") + X,
    "another made Model": HEAD
    + "class Model(nn.Module):\n    def __init__(self, depth=2):\n        super().__init__()\n"
    "        self.inner = Model(depth - 1) if depth else nn.Identity()\n\n"
    "    def forward(self, x):\n        return torch.tanh(self.inner(x)) + 1\n" + X,
    "functools.partial": "from functools import partial\n" + HEAD
    + "act = partial(F.leaky_relu, negative_slope=0.2)\n"
    + model("return act(x) + torch.tanh(x) * 2") + X,
}  # fmt: skip

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "inputs in bfloat16": (
        HEAD + model("return F.gelu(x) * 2")
        + "\ndef get_inputs():\n    return [torch.randn(16, 64, dtype=torch.bfloat16)]\n" + INIT,
        ("input 0 (x) is bfloat16[16, 64]", "line 13", "float32 alone"),
    ),
    "a parameter in half": (
        HEAD + model("return torch.tanh(self.w)",
                     "self.w = nn.Parameter(torch.ones(64, dtype=torch.float16))") + X,
        ("self.w is float16 (line 7)", "float32 alone"),
    ),
    "layers in float64": (
        HEAD + model("return self.up(x)", "self.up = nn.Linear(64, 64, dtype=torch.float64)") + X,
        ("self.up.weight is float64 (line 7)", "float32 alone"),
    ),
    "a module made half": (
        HEAD + model("return torch.tanh(self.up(x))",
                     "self.up = nn.Linear(64, 64)\nself.half()") + X,
        ("self.half()", "line 8", "float32"),
    ),
    "another default type": (
        HEAD + "torch.set_default_dtype(torch.float64)\n" + model("return torch.tanh(x)") + X,
        ("set_default_dtype", "line 4"),
    ),
    "nothing but PyTorch's own": (
        HEAD + model("y = self.up(x)\nreturn y @ y.T", "self.up = nn.Linear(64, 64)") + X,
        ("self.up (line 10)", "@ (line 11)"),
    ),
    "a loop on data": (
        HEAD + model("while x.sum() > 0:\n    x = x - 1\nreturn x") + X, ("while", "line 10"),
    ),
    "a branch on data": (
        HEAD + model("if x.max() > 0:\n    x = x * 2\nreturn x") + X,
        ("a tensor's numbers", "line 10"),
    ),
    "autocast": (
        HEAD + model("with torch.autocast('cpu', dtype=torch.bfloat16):\n    return torch.tanh(x)")
        + X, ("torch.autocast", "line 10"),
    ),
    "an assignment in place": (
        HEAD + model("y = torch.tanh(x)\ny[:, 0] = 0.0\nreturn y") + X, ("y[:, 0]", "line 11"),
    ),
    "a method in place": (
        HEAD + model("y = torch.tanh(x)\ny.add_(1.0)\nreturn y") + X, ("y.add_", "line 11"),
    ),
    "in place behind another name": (
        HEAD + model("y = torch.tanh(x)\nz = y.clone()\ny += 1\nreturn y * z") + X,
        ("y is changed in place", "z", "line 12"),
    ),
    "used after it was changed": (
        HEAD + model("y = x * 2\nz = F.relu(y, inplace=True)\nreturn y + z") + X,
        ("y is used again", "line 11"),
    ),
    "a decorator of its own": (
        HEAD + "def doubled(f):\n    return lambda *a: f(*a) * 2\n\n"
        "class Model(nn.Module):\n    @doubled\n    def forward(self, x):\n"
        "        return torch.tanh(x)\n" + X, ("@doubled", "line 8"),
    ),
    "stored state": (
        HEAD + model("self.last = torch.tanh(x)\nreturn self.last") + X, ("self.last", "line 10"),
    ),
    "a base from elsewhere": (
        HEAD + "class Model(nn.Sequential):\n    def __init__(self):\n"
        "        super().__init__(nn.Linear(64, 64), nn.ReLU())\n" + X,
        ("nn.Sequential", "line 4"),
    ),
    "an imported Model": ("from elsewhere import Model\n" + HEAD + X, ("imported", "line 1")),
    "a boolean result": (HEAD + model("return x > 0") + X, ("booleans", "line")),
    "an object as an input": (
        HEAD + "class Box:\n    def __init__(self, t):\n        self.t = t\n\n"
        + model("return torch.tanh(box.t)", takes="box")
        + "\ndef get_inputs():\n    return [Box(torch.randn(4))]\n" + INIT,
        ("input 0 (box)", "line"),
    ),
    "a name that a candidate needs": (
        HEAD + "def fits(x):\n    return x\n\n" + model("return torch.tanh(fits(x))") + X,
        ("fits", "line 4"),
    ),
    "a layer that is made in the forward": (
        HEAD + model("return torch.tanh(nn.Linear(64, 64)(x))") + X, ("Linear", "line 10"),
    ),
    "a module without end": (
        HEAD + "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.pair = [Model() for _ in range(3)]\n\n    def forward(self, x):\n"
        "        return torch.tanh(x)\n" + X, ("calls itself", "line"),
    ),
    "a generator": (HEAD + model("yield torch.tanh(x)") + X, ("yield", "line 10")),
    "a number beside the outputs": (
        HEAD + model("return torch.tanh(x), x.shape[0]") + X,
        ("the result has 16 in it", "line 10"),
    ),
    "a named part of an operation's result": (
        HEAD + model("return torch.tanh(x), torch.topk(x, 5).indices") + X,
        ("the result has .indices in it", "line 10"),
    ),
    "a name that nothing defines": (
        HEAD + model("return torch.tanh(x) * missing") + X, ("missing", "line 10"),
    ),
}  # fmt: skip
