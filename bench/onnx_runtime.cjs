// ONNX Runtime as a measured program: the same answers as bench/worker.py.
//
// usage: onnx_runtime.cjs PACKAGES FOLDER THREADS SECONDS
//
// PACKAGES has node_modules with onnxruntime-node, FOLDER what export_onnx.py has written.
"use strict";
const fs = require("fs");
const path = require("path");
const readline = require("readline");

const [packages, folder, threads, seconds] = process.argv.slice(2);
const ort = require(path.join(packages, "node_modules", "onnxruntime-node"));

const answer = (values) => process.stdout.write(JSON.stringify(values) + "\n");

async function secondsPerStep(step, count) {
  const start = process.hrtime.bigint();
  for (let i = 0; i < count; ++i) await step();
  return Number(process.hrtime.bigint() - start) / 1e9 / count;
}

async function main() {
  const session = await ort.InferenceSession.create(path.join(folder, "model.onnx"), {
    executionProviders: ["cpu"],
    executionMode: "sequential",
    graphOptimizationLevel: "all",
    intraOpNumThreads: Number(threads),
    interOpNumThreads: 1,
  });
  const bytes = fs.readFileSync(path.join(folder, "input.bin"));
  const shape = fs.readFileSync(path.join(folder, "shape.txt"), "utf8").split(",").map(Number);
  const data = new Float32Array(new Uint8Array(bytes).buffer);
  const feeds = { [session.inputNames[0]]: new ort.Tensor("float32", data, shape) };
  const step = () => session.run(feeds);
  const result = (await step())[session.outputNames[0]];
  for (let i = 0; i < 2; ++i) await step();
  const length = await secondsPerStep(step, 1);
  answer({ values: Array.from(result.data), seconds: length });
  const count = Math.max(1, Math.round(Number(seconds) / length));
  for await (const _ of readline.createInterface({ input: process.stdin })) {
    answer({ seconds: await secondsPerStep(step, count) });
  }
}

main().catch((error) => {
  console.error(String(error));
  process.exit(1);
});
