"""Runs cards here and prints a table: python -m tests.cards [--device cuda|cpu] [NAME…]."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import msgspec
import torch
from card_runner import Call, CardResult, prepared_call, run_sample
from card_samples import SAMPLES

from actors.agents.cards.card import Card, load_cards


def main() -> int:
    """Run the cards; the status is 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
    parser.add_argument("--jobs", type=int, default=16, help="compilers at a time")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("names", nargs="*", help="names of cards (default: all of the device)")
    options = parser.parse_args()
    is_cuda = options.device == "cuda"
    cards = [
        card
        for card in load_cards()
        if (card.backend != "cpp") is is_cuda and (not options.names or card.name in options.names)
    ]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if is_cuda:
        torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda")  # loads cuBLAS
    results: list[CardResult] = []
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        calls = {c.name: pool.submit(prepared_call, c, Path(folder)) for c in cards}
        for card in cards:
            failed += _run(card, calls[card.name], options.device, results)
    if options.json:
        device = _device_name(options.device)
        rows = [{**vars(each), "is_right": each.is_right, "device": device} for each in results]
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))  # inf: null
    print(f"{len(cards)} cards, {failed} failed")
    return 1 if failed else 0


def _device_name(device: str) -> str:
    """Return how effects name this device: "H100", "16 cores"."""
    if device == "cpu":
        return f"{len(os.sched_getaffinity(0))} cores"
    words = torch.cuda.get_device_name().removeprefix("NVIDIA ").split()
    return words[0]


def _run(card: Card, prepared: Future[Call], device: str, results: list[CardResult]) -> int:
    try:
        call = prepared.result()
        for sample in SAMPLES[card.name]:
            result = run_sample(card, call, sample, device, timed=True)
            if device == "cuda":
                torch.cuda.synchronize()
            results.append(result)
            times = f"{result.us:9.1f} us" if result.us is not None else ""
            if result.us is not None and result.torch_us is not None:
                ratio = result.torch_us / result.us
                times += f", torch {result.torch_us:9.1f}, {ratio:6.2f}x"
            print(
                f"{'ok   ' if result.is_right else 'WRONG'} {result.name:26} {result.sizes:44.44}"
                f" error {result.error:8.1e} (torch {result.torch_error:8.1e})"
                f" {times} {result.figure}",
                flush=True,
            )
        return int(any(not r.is_right for r in results if r.name == card.name))
    except Exception:  # noqa: BLE001  one card's failure must not hide the others
        print(f"FAIL  {card.name}\n{traceback.format_exc()[-3000:]}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
