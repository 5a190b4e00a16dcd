#!/usr/bin/env python3
"""Prints ours.jsonl and peers.jsonl of a folder as one table: bench/gpu/table.py FOLDER"""

import json
import pathlib
import sys

PRECISION = {"float32": "fp32", "mixed_bfloat16": "bf16", "mixed_float16": "fp16"}
PEERS = {"eager": "PyTorch eager", "compile": "torch.compile", "autotune": "max-autotune",
         "autotune-library": "max-autotune, library", "jax": "JAX"}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def main():
    folder = pathlib.Path(sys.argv[1])
    peers = {}
    for line in lines(folder / "peers.jsonl"):
        if "ms" in line:
            peers.setdefault((line["work"], line["precision"]), {})[line["peer"]] = line
    print("| work | precision | Plimsoll, ms | best peer, ms | ratio |", " | ".join(f"{name}, ms" for name in PEERS.values()),
          "| memory of the process, MiB (planned) | best peer's, MiB | first step, s | best peer's, s |")
    print("| " + " | ".join(["---"] * (9 + len(PEERS))) + " |")
    for ours in lines(folder / "ours.jsonl"):
        work, precision = ours["model"].removesuffix(".json"), PRECISION[ours["precision"]]
        of = peers.get((work, precision), {})
        best = min(of.values(), key=lambda line: line["ms"], default=None)
        cells = [f"{work}{' in 7 GiB' if ours.get('levers') and work == 'resnet50' else ''}, batch {ours['batch']}", precision,
                 f"{ours['ms']:.3f}", f"{best['ms']:.3f} ({PEERS[best['peer']]})" if best else "–",
                 f"**{ours['ms'] / best['ms']:.2f}**" if best else "–"]
        cells += [f"{of[peer]['ms']:.3f}" if peer in of else "–" for peer in PEERS]
        cells += [f"{ours['driver_mib']:.0f}" + (f" ({ours['planned_mib']:.0f})" if "planned_mib" in ours else ""),
                  f"{best['process_mib']:.0f}" if best and "process_mib" in best else "–", f"{ours['first_step_s']:.1f}",
                  f"{best['first_step_s']:.1f}" if best else "–"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
