"""Writes a workload's network and its input for bench/onnx_runtime.cjs.

usage: export_onnx.py WORKLOAD FOLDER [quick]
"""
import pathlib
import sys

import models
import torch
from workloads import WORKLOADS


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    model, batch = models.make(WORKLOADS[name], "quick" in sys.argv[3:])
    images = batch[0]
    (folder / "input.bin").write_bytes(images.numpy().tobytes())
    (folder / "shape.txt").write_text(",".join(map(str, images.shape)))
    torch.onnx.export(model.model.eval(), images, str(folder / "model.onnx"), opset_version=13)


if __name__ == "__main__":
    main()
