"""torch.nn classes: the function that each applies, and the parameters that it holds.

Each entry of `LAYERS` takes the class's own constructor arguments, so that Python binds them as
torch would.  A class that is missing here stays in PyTorch as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actors.agents.recipes.frontend.symbolic_values import (
    ARGUMENT_ERRORS,
    MetaTensor,
    ModuleValue,
    OpaqueValue,
    Symbol,
    TorchLayer,
)
from actors.agents.recipes.ir.graph import UnsupportedOperationError
from actors.agents.recipes.ir.shape_inference import numbers

LayerFactory = Callable[..., TorchLayer]


def activation(function: str, **defaults: object) -> LayerFactory:
    """A layer without parameters whose constructor takes these arguments in this order."""

    def make(*args: object, **kwargs: object) -> TorchLayer:
        values = dict(zip(defaults, args, strict=False)) | kwargs
        inplace = bool(values.pop("inplace", False))
        unknown = set(values) - set(defaults)
        if unknown or len(args) > len(defaults):
            raise TypeError(f"{function} takes no {unknown}")
        settings = {name: value for name, value in defaults.items() if name != "inplace"}
        return TorchLayer(function=function, kwargs={**settings, **values}, inplace=inplace)

    return make


def linear(in_features: int, out_features: int, bias: bool = True, **_: object) -> TorchLayer:
    shapes: dict[str, tuple[int, ...]] = {"weight": (out_features, in_features)}
    if bias:
        shapes["bias"] = (out_features,)
    return TorchLayer(function="linear", parameters=shapes)


def convolution(rank: int, transposed: bool) -> LayerFactory:
    def make(
        in_channels: int,
        out_channels: int,
        kernel_size: object,
        stride: object = 1,
        padding: object = 0,
        *rest: object,
        **kwargs: object,
    ) -> TorchLayer:
        order = ("output_padding", "groups", "bias", "dilation") if transposed else (
            "dilation", "groups", "bias")  # fmt: skip
        settings = dict(zip(order, rest, strict=False)) | kwargs
        bias = settings.pop("bias", True)
        if settings.pop("padding_mode", "zeros") != "zeros":
            raise TypeError("a padding mode")
        groups = settings.get("groups", 1)
        if not isinstance(groups, int):
            raise TypeError("groups that are not a number")
        if transposed:
            shape = (in_channels, out_channels // groups, *numbers(kernel_size, rank))
        else:
            shape = (out_channels, in_channels // groups, *numbers(kernel_size, rank))
        shapes = {"weight": shape} | ({"bias": (out_channels,)} if bias else {})
        known = {name: settings[name] for name in order if name in settings}
        return TorchLayer(
            function=f"conv{'_transpose' if transposed else ''}{rank}d",
            kwargs={"stride": stride, "padding": padding, **known},
            parameters=shapes,
        )

    return make


def layer_norm(
    normalized_shape: object,
    eps: float = 1e-5,
    elementwise_affine: bool = True,
    bias: bool = True,
    **_: object,
) -> TorchLayer:
    shape = normalized_shape if isinstance(normalized_shape, tuple | list) else (normalized_shape,)
    sizes = tuple(int(n) for n in shape)
    names = ("weight", "bias")[: (2 if bias else 1) if elementwise_affine else 0]
    return TorchLayer(
        function="layer_norm",
        kwargs={"normalized_shape": sizes, "eps": eps},
        parameters={name: sizes for name in names},
    )


def rms_norm(
    normalized_shape: object, eps: float | None = None, elementwise_affine: bool = True, **_: object
) -> TorchLayer:
    layer = layer_norm(normalized_shape, 0.0, elementwise_affine, False)
    kwargs = {**layer.kwargs, "eps": eps}
    return TorchLayer(function="rms_norm", kwargs=kwargs, parameters=layer.parameters)


def group_norm(
    num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, **_: object
) -> TorchLayer:
    return TorchLayer(
        function="group_norm",
        kwargs={"num_groups": num_groups, "eps": eps},
        parameters={"weight": (num_channels,), "bias": (num_channels,)} if affine else {},
    )


def batch_norm(
    num_features: int,
    eps: float = 1e-5,
    momentum: float = 0.1,
    affine: bool = True,
    track_running_stats: bool = True,
    **_: object,
) -> TorchLayer:
    if not track_running_stats:
        raise TypeError("a batch norm without running statistics")
    names = ["running_mean", "running_var"] + (["weight", "bias"] if affine else [])
    return TorchLayer(
        function="batch_norm",
        kwargs={"eps": eps},
        parameters={name: (num_features,) for name in names},
    )


def instance_norm(
    num_features: int,
    eps: float = 1e-5,
    momentum: float = 0.1,
    affine: bool = False,
    track_running_stats: bool = False,
    **_: object,
) -> TorchLayer:
    if track_running_stats:
        raise TypeError("an instance norm with running statistics")
    return TorchLayer(
        function="instance_norm",
        kwargs={"eps": eps},
        parameters={"weight": (num_features,), "bias": (num_features,)} if affine else {},
    )


def prelu(num_parameters: int = 1, init: float = 0.25, **_: object) -> TorchLayer:
    return TorchLayer(function="prelu", parameters={"weight": (num_parameters,)})


POOL_ARGUMENTS = {"kernel_size": 1, "stride": None, "padding": 0}
MAX_POOL_ARGUMENTS = {**POOL_ARGUMENTS, "dilation": 1, "return_indices": False, "ceil_mode": False}
AVG_POOL_ARGUMENTS = {**POOL_ARGUMENTS, "ceil_mode": False, "count_include_pad": True}

LAYERS: dict[str, LayerFactory] = {
    "Linear": linear,
    "LayerNorm": layer_norm,
    "RMSNorm": rms_norm,
    "GroupNorm": group_norm,
    "PReLU": prelu,
    "Identity": lambda *args, **kwargs: TorchLayer(function="contiguous"),
    "Flatten": activation("flatten", start_dim=1, end_dim=-1),
    "GLU": activation("glu", dim=-1),
    "Softmax": activation("softmax", dim=-1),
    "LogSoftmax": activation("log_softmax", dim=-1),
    "Softmin": activation("softmin", dim=-1),
    "ReLU": activation("relu", inplace=False),
    "ReLU6": activation("relu6", inplace=False),
    "GELU": activation("gelu", approximate="none"),
    "SiLU": activation("silu", inplace=False),
    "Mish": activation("mish", inplace=False),
    "SELU": activation("selu", inplace=False),
    "Sigmoid": activation("sigmoid"),
    "Tanh": activation("tanh"),
    "Softsign": activation("softsign"),
    "Tanhshrink": activation("tanhshrink"),
    "LogSigmoid": activation("logsigmoid"),
    "Hardsigmoid": activation("hardsigmoid", inplace=False),
    "Hardswish": activation("hardswish", inplace=False),
    "Hardtanh": activation("hardtanh", min_val=-1.0, max_val=1.0, inplace=False),
    "LeakyReLU": activation("leaky_relu", negative_slope=0.01, inplace=False),
    "ELU": activation("elu", alpha=1.0, inplace=False),
    "CELU": activation("celu", alpha=1.0, inplace=False),
    "Softplus": activation("softplus", beta=1.0, threshold=20.0),
    "Hardshrink": activation("hardshrink", lambd=0.5),
    "Softshrink": activation("softshrink", lambd=0.5),
    "Threshold": activation("threshold", threshold=0.0, value=0.0, inplace=False),
    "Dropout": activation("dropout", p=0.5, inplace=False),
    "MSELoss": activation("mse_loss", reduction="mean"),
    "L1Loss": activation("l1_loss", reduction="mean"),
    "SmoothL1Loss": activation("smooth_l1_loss", reduction="mean", beta=1.0),
    "HuberLoss": activation("huber_loss", reduction="mean", delta=1.0),
    "KLDivLoss": activation("kl_div", reduction="mean", log_target=False),
    "CosineSimilarity": activation("cosine_similarity", dim=1, eps=1e-8),
    "TripletMarginLoss": activation("triplet_margin_loss", margin=1.0, p=2.0, eps=1e-6),
    **{f"BatchNorm{rank}d": batch_norm for rank in (1, 2, 3)},
    **{f"InstanceNorm{rank}d": instance_norm for rank in (1, 2, 3)},
    **{f"Conv{rank}d": convolution(rank, False) for rank in (1, 2, 3)},
    **{f"ConvTranspose{rank}d": convolution(rank, True) for rank in (1, 2, 3)},
    **{
        f"MaxPool{rank}d": activation(f"max_pool{rank}d", **MAX_POOL_ARGUMENTS)
        for rank in (1, 2, 3)
    },
    **{
        f"AvgPool{rank}d": activation(f"avg_pool{rank}d", **AVG_POOL_ARGUMENTS)
        for rank in (1, 2, 3)
    },
    **{
        f"Adaptive{kind}Pool{rank}d": activation(
            f"adaptive_{kind.lower()}_pool{rank}d", output_size=1
        )
        for rank in (1, 2, 3)
        for kind in ("Avg", "Max")
    },
}

CONTAINERS = ("Sequential", "ModuleList")


def construct_layer(kind: str, args: list[object], kwargs: dict[str, object], line: int) -> object:
    """The value of `torch.nn.kind(*args, **kwargs)` on a line of the task's file.

    A parameter becomes its shape, a container its items, a layer a `ModuleValue`; of a class that
    is not known, or that is made with unusual arguments, the `ModuleValue` has no layer.
    """
    if kind in ("Parameter", "Buffer"):
        return args[0] if args and isinstance(args[0], MetaTensor) else OpaqueValue()
    if kind == "ModuleDict" and args and isinstance(args[0], dict):
        return dict(args[0])
    if kind == "ParameterList" and args and isinstance(args[0], list):
        return list(args[0])
    unknown = ModuleValue(text="", kind=kind, line=line)
    if kind in CONTAINERS:
        items = args if kind == "Sequential" else args[0] if args else []
        if isinstance(items, list | tuple) and all(isinstance(i, ModuleValue) for i in items):
            return ModuleValue(text="", kind=kind, children=list(items), line=line)
        return unknown
    factory = LAYERS.get(kind)
    if factory is None:
        return unknown
    try:
        layer = factory(*args, **kwargs)
    except (*ARGUMENT_ERRORS, UnsupportedOperationError):
        return unknown
    dtype = kwargs.get("dtype")
    if dtype is not None:
        name = dtype.name.removeprefix("torch.") if isinstance(dtype, Symbol) else "unknown"
        layer = msgspec.structs.replace(layer, dtype=name)
    return ModuleValue(text="", kind=kind, layer=layer, line=line)
