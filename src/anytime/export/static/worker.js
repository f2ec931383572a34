// The worker that samples, so that the page stays responsive. It takes one request at a time; a newer one supersedes it.

import { mediaType } from "./files.js";
import { loadModel } from "./model.js";
import { Problem } from "./problem.js";
import { Sampler } from "./sampler.js";

const BUILDS = { wasm: "ort.wasm.bundle.min.mjs", webgpu: "ort.jspi.bundle.min.mjs" };
const device = new URL(location.href).searchParams.get("device") ?? "wasm";
const runtime = loadRuntime();
const samplers = new Map(); // promises, by the name of the model
const channel = new MessageChannel();
let latest = 0; // number of the latest request
let work = Promise.resolve(); // ends with the request in progress

const now = () => performance.timeOrigin + performance.now(); // a clock that the page shares

/** A newer request supersedes this one. */
class Superseded extends Error {}

/** Load ONNX Runtime. One thread: several need headers that a plain host does not send. */
async function loadRuntime() {
  const ort = await import(`./runtime/${BUILDS[device]}`);
  ort.env.wasm.numThreads = 1;
  return ort;
}

/** Load a model once; `say` gets sentences about it. */
function loadSampler(description, say) {
  if (!samplers.has(description.id)) {
    const loading = load(description, say).catch((error) => {
      samplers.delete(description.id); // the next request tries again
      throw error instanceof Problem ? error : new Problem(`the model cannot be started in this browser (${error.message})`);
    });
    samplers.set(description.id, loading);
  }
  return samplers.get(description.id);
}

async function load(description, say) {
  const total = Object.values(description.files).reduce((sum, { bytes }) => sum + bytes, 0);
  let loaded = 0;
  const read = (name) =>
    readFile(`${description.folder}/${name}`, (bytes) => {
      loaded += bytes;
      const part = `${Math.floor((100 * loaded) / total)} % of ${(total / 1e6).toFixed(1)} MB`;
      say(loaded < total ? `Loading the model: ${part}.` : "Starting the model…");
    });
  const options = { executionProviders: [device], logSeverityLevel: 3 }; // errors only
  return new Sampler(await loadModel(runtime, description, read, options), now);
}

async function readFile(path, onBytes) {
  const answer = await fetch(path).catch(() => null);
  if (!answer?.ok) throw new Problem(`${path} cannot be loaded; reload the page`);
  const [reader, parts] = [answer.body.getReader(), []];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(parts).arrayBuffer());
    parts.push(value);
    onBytes(value.length);
  }
}

/** Let messages come in; throw if one of them supersedes request `number`. */
async function pause(number) {
  await new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });
  if (number !== latest) throw new Superseded();
}

/** Sample a request and post every refinement. Loading the model does not count towards the deadline. */
async function sample({ number, description, request, started }, post) {
  const [{ id, length }, before] = [description, now()];
  const wasLoaded = samplers.has(id);
  const sampler = await loadSampler(description, (waiting) => post({ waiting }));
  const start = wasLoaded ? started : started + now() - before;
  for await (const { rows, count, samples, final } of sampler.sample(request, start, () => pause(number))) {
    const facts = { model: id, codes: count, requested: length, length, shortened: final && count < length };
    post({ refinement: { ...facts, code_rows: rows, media_type: mediaType(description), samples }, final, started: start });
  }
}

async function answer(data) {
  const { number } = data;
  const post = (message) => postMessage({ number, ...message });
  try {
    if (number === latest) await sample(data, post);
  } catch (error) {
    if (!(error instanceof Superseded)) post({ problem: error.message });
  }
}

/** A message without a request only stops the one in progress. */
onmessage = ({ data }) => {
  latest = data.number;
  if (data.request) work = work.then(() => answer(data));
};
