// The source of samples of `anytime serve`: its HTTP interface. `page.js` says what a source is.

import { Problem } from "./problem.js";

/** Return the server of this page, as a source. */
export function openSource() {
  let token = ""; // in memory only

  async function call(path, options = {}) {
    const headers = { ...options.headers, ...(token && { Authorization: `Bearer ${token}` }) };
    const answer = await fetch(path, { ...options, headers }).catch(unreachable);
    if (answer.ok) return answer;
    const problem = await answer.json().catch(() => ({}));
    throw new Problem(problem.detail ?? `the server answered with status ${answer.status}`, answer.status);
  }

  return {
    authorize: (given) => void (token = given),
    models: async () => (await (await call("v1/models")).json()).data,
    stats: async () => (await call("v1/stats")).json(),
    async sample(request, onRefinement, signal) {
      const headers = { "Content-Type": "application/json", Accept: "text/event-stream" };
      const body = JSON.stringify({ ...request, every: 1 });
      const answer = await call("v1/samples", { method: "POST", headers, body, signal });
      let final = null;
      for await (const { name, data } of events(answer.body)) {
        if (name === "error") throw new Problem(data.detail, data.status);
        if (name === "sample") final = data;
        onRefinement(data);
      }
      if (!final) throw new Problem("the stream ended before the final sample");
      return final;
    },
  };
}

function unreachable() {
  throw new Problem("the server cannot be reached");
}

/** Read server-sent events: yield the name and the JSON data of each. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(unreachable);
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/, 2)));
      yield { name: fields.event, data: JSON.parse(fields.data) };
    }
  }
}
