// Checks of a request against a model: the sentences of anytime/server/protocol.py.

import { Problem } from "./problem.js";

const MAX_ROWS = 256;
const MAX_DEADLINE_MS = 600_000;

/** Return the model of that name, by default the first. */
export function findModel(models, name) {
  const found = name ? models.find(({ id }) => id === name) : models[0];
  check(found, `there is no model '${name}'; choose one of ${models.map(({ id }) => id).join(", ")}`);
  return found;
}

/** Check a request of the page; return it with its prefix as one row. */
export function checkRequest({ n, seed, prefix, temperature, deadline_ms: within }, { length, codebook_size: size }) {
  const codes = prefix?.[0] ?? [];
  check(isWhole(n, 1, MAX_ROWS), `n must be between 1 and ${MAX_ROWS}, not ${n}`);
  check(isWhole(seed, 0, Number.MAX_SAFE_INTEGER), `seed must be between 0 and 2^53 - 1, not ${seed}`);
  check(codes.every((code) => isWhole(code, 0, size - 1)), `prefix must have codes of this model: 0 to ${size - 1}`);
  check(codes.length <= length, `prefix has ${codes.length} codes, more than the model's ${length}`);
  check(temperature === null || (temperature >= 1e-3 && temperature <= 100), `temperature must be between 0.001 and 100, not ${temperature}`);
  check(within === null || (within > 0 && within <= MAX_DEADLINE_MS), `deadline must be above 0 and at most ${MAX_DEADLINE_MS} ms, not ${within}`);
  return { n, seed, prefix: codes, temperature, deadline_ms: within };
}

const isWhole = (value, least, most) => Number.isSafeInteger(value) && value >= least && value <= most;

function check(condition, otherwise) {
  if (!condition) throw new Problem(otherwise);
}
