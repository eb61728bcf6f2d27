"""Whether a card serves several processes at once: the judge's own and the candidate's.

A card in compute mode Exclusive_Process gives all but one process the error "busy or unavailable",
which would look like a fault of the candidate or of the card.  MPS, behind which such a card serves
several, is not used by the judge (`sandbox/sandbox.py`).
"""

from __future__ import annotations

import pynvml

REFUSING_MODES = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "Exclusive_Thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "Prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "Exclusive_Process",
}


def refusal(device: object) -> str | None:
    """Return why a card or a MIG instance can't be used, by the driver's handle; None: it can.

    A driver that does not tell the mode is no reason.
    """
    try:
        mode = REFUSING_MODES.get(pynvml.nvmlDeviceGetComputeMode(device))
    except pynvml.NVMLError:
        return None
    if mode is None:
        return None
    return (
        f"the card is in compute mode {mode}, and the judge uses it from several processes at once,"
        " never through MPS: set the mode Default (nvidia-smi -c 0, as root), or ask your cluster"
        " for a card in this mode"
    )


def refusal_of_all_cards() -> str | None:
    """Return why no card of this machine can be used; None where one can, or none is listed.

    Which of several cards an index of CUDA means is known only to a process that uses it.
    """
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        reasons = [refusal(pynvml.nvmlDeviceGetHandleByIndex(number)) for number in range(count)]
    except pynvml.NVMLError:
        return None
    return reasons[0] if reasons and all(reasons) else None
