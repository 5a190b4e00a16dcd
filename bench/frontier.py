#!/usr/bin/env python3
"""How much time recompute costs for how many bytes, beside the lower bound that the plan prints; writes bench/frontier.md.

    bench/frontier.py [--program build/plimsoll] [--models resnet50,unet] [--device h200-141g] [--out bench/frontier.md]

Nothing is trained: every number is predicted by `plimsoll plan --json`, for a card that need not be there. For each model the
budget leaves a share of the bytes that are not persistent (weights and optimizer state), and recompute alone is allowed. The
bound holds for any choice of what to recompute, with the same order of nodes, kernels and batch. Needs Keras, which writes the
models."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "gpu"))
sys.setrecursionlimit(100_000)  # Keras walks deep networks recursively

import keras
from keras import layers

import make_models

SHARES = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35)


def residual_network(blocks):
    inputs = keras.Input((224, 224, 3))
    x = make_models.convolution(inputs, 64, 7, 2, "stem")
    x = layers.MaxPooling2D(3, strides=2)(layers.ZeroPadding2D(1)(x))
    for stage, (filters, count) in enumerate(zip((64, 128, 256, 512), blocks)):
        for block in range(count):
            x = make_models.bottleneck(x, filters, 2 if stage > 0 and block == 0 else 1, f"stage{stage}_{block}")
    return keras.Model(inputs, layers.Dense(1000, activation="softmax")(layers.GlobalAveragePooling2D()(x)))


def feed_forward_blocks(count, width=1024, length=128):
    x = inputs = keras.Input((length, width))
    for _ in range(count):
        y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(width)(y)])
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


MODELS = {  # name -> (batch, model)
    "resnet50": (256, make_models.resnet50),
    "resnet152": (256, lambda: residual_network((3, 8, 36, 3))),
    "resnet302": (64, lambda: residual_network((3, 8, 86, 3))),
    "unet": (32, make_models.unet),
    "densenet121": (128, lambda: keras.applications.DenseNet121(weights=None)),
    "mobilenetv2": (256, lambda: keras.applications.MobileNetV2(weights=None)),
    "efficientnetb0": (128, lambda: keras.applications.EfficientNetB0(weights=None)),
    "ffn24": (32, lambda: feed_forward_blocks(24)),
}


class Planner:
    def __init__(self, program, device, file, batch):
        self.command = [program, "plan", file, "--batch-size", str(batch), "--device", device, "--precision", "mixed_bfloat16",
                        "--loss", "sparse_categorical_crossentropy", "--optimizer", "adam", "--json"]  # fmt: skip

    def plan(self, budget, *flags):
        run = subprocess.run([*self.command, "--budget", str(budget), *flags], capture_output=True, text=True)
        return json.loads(run.stdout) if run.returncode == 0 else None


def row(planner):
    """Per share: percent that the step takes longer, and that the bound says it takes longer; None if it does not fit."""
    whole = planner.plan("2TiB", "--forbid", "recompute,offload,micro-batch,split")
    persistent = sum(c["bytes"] for c in whole["categories"] if c["name"] in ("weights", "optimizer"))
    transient, seconds = whole["arena_bytes"] - persistent, whole["compute_seconds"]
    cells = []
    for share in SHARES:
        budget = whole["overhead_bytes"] + whole["data_bytes"] + persistent + int(share * transient)
        plan = planner.plan(budget, "--allow", "recompute")
        more = lambda key: 100 * (plan[key] / seconds - 1)
        cells.append(plan and (more("compute_seconds"), more("least_compute_seconds")))
    return transient, seconds, cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default=str(HERE.parent / "build/plimsoll"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--device", default="h200-141g")
    parser.add_argument("--out", default=str(HERE / "frontier.md"))
    args = parser.parse_args()
    lines = [
        "# What recompute costs for which bytes\n",
        f"Made by `bench/frontier.py --device {args.device}`: predicted, bf16, whole batch, recompute alone. A cell says by how",
        "many percent the step takes longer / what no choice of recompute takes less than, for the share of transient bytes.\n",
        "| model, batch | transient, MiB | step, ms | " + " | ".join(f"{share:g}" for share in SHARES) + " |",
        "| --- " * (3 + len(SHARES)) + "|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models.split(","):
            batch, model = MODELS[name]
            file = pathlib.Path(folder) / f"{name}.json"
            file.write_text(model().to_json())
            transient, seconds, cells = row(Planner(args.program, args.device, str(file), batch))
            text = " | ".join("does not fit" if c is None else f"{c[0]:+.1f} / {c[1]:+.1f}" for c in cells)
            lines.append(f"| {name}, {batch} | {transient / 2**20:,.0f} | {seconds * 1e3:.1f} | {text} |")
            print(lines[-1], flush=True)
    pathlib.Path(args.out).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
