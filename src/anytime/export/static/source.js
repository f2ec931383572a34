// The source of samples of an exported page: models inside the browser. `page.js` says what a source is.

import { Problem } from "./problem.js";
import { checkRequest, findModel } from "./request.js";

const now = () => performance.timeOrigin + performance.now(); // a clock that the worker shares

export function openSource() {
  const wanted = new URLSearchParams(location.search).get("device");
  const device = wanted === "webgpu" && hasWebGpu() ? "webgpu" : "wasm";
  const worker = typeof WebAssembly === "object" ? new Worker(`worker.js?device=${device}`, { type: "module" }) : null;
  const listed = readModels();
  listed.catch(() => {}); // whoever asks for the models gets the problem
  let latest = 0; // number of the latest request

  return {
    models: () => listed,
    notes: async () => describe(device),
    async sample(request, onRefinement, signal, onWait) {
      const started = now();
      if (!worker) throw new Problem("this browser has no WebAssembly, which the model needs; use another one");
      const description = findModel(await listed, request.model);
      const message = { number: ++latest, description, request: checkRequest(request, description), started };
      signal.addEventListener("abort", () => worker.postMessage({ number: ++latest }));
      return follow(worker, message, onRefinement, onWait);
    },
  };
}

async function readModels() {
  const answer = await fetch("models.json").catch(() => null);
  const listed = answer?.ok ? await answer.json().catch(() => null) : null; // some hosts answer with a page of their own
  if (!listed) throw new Problem("models.json cannot be loaded; serve the whole folder by HTTP");
  return listed.models;
}

/** Post a request to the worker; return the final refinement. A request that is superseded never ends. */
function follow(worker, message, onRefinement, onWait) {
  return new Promise((resolve, reject) => {
    const fail = (problem) => {
      worker.onmessage = null; // other files may still be loading
      reject(new Problem(problem));
    };
    worker.onerror = () => fail("the worker that samples cannot be started; reload the page");
    worker.onmessage = ({ data: { number, waiting, problem, refinement, final, started } }) => {
      if (number !== message.number) return;
      if (waiting) return onWait(waiting);
      if (problem) return fail(problem);
      refinement.seconds = (now() - started) / 1000;
      onRefinement(refinement);
      if (final) resolve(refinement);
    };
    worker.postMessage(message);
  });
}

/** WebGPU, and the part of WebAssembly that its build of ONNX Runtime needs. */
const hasWebGpu = () => "gpu" in navigator && "Suspending" in (globalThis.WebAssembly ?? {});

function describe(device) {
  const how = device === "webgpu" ? "WebGPU, which is untested" : "WebAssembly";
  const text = `The model runs inside this page, by ${how}. Nothing is sent.`;
  if (device === "webgpu") return { text, link: { text: "Use WebAssembly.", href: "?" } };
  return { text, link: hasWebGpu() ? { text: "Try WebGPU (untested).", href: "?device=webgpu" } : null };
}
