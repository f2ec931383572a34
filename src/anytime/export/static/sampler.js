// The sampling loop: one code after another, complete samples in between, and an end in time.

import { gumbelArgmax, key, streamKey } from "./gumbel.js";
import { Latency } from "./latency.js";

const MARGIN_MS = 8; // to hand the final sample to the page and show it
const ROWS_SHARE = 0.8; // of the time left for as many rows as fit: few rows in time are better than more too late
const REFINING_MS = 1000; // to spend on decoding refinements without a deadline: a large grid shows fewer of them
const FEWEST_REFINEMENTS = 4; // but at least these

/**
 * Sampling from one model. `model` has {length, codebook_size, temperature} and
 *   start(n, prefix): a state of n rows that begin with the same prefix,
 *   step(state, codes): a promise of logits [n, codebook_size], given the last code of every row,
 *   decode(rows): a promise of complete samples of these rows of codes.
 * `now` is a clock in milliseconds.
 */
export class Sampler {
  #latencies = new Map(); // by number of rows
  #rowMs = 0; // a step and a decode of one row, as last measured

  constructor(model, now) {
    Object.assign(this, { model, now });
  }

  /**
   * Yield complete samples {rows, count, samples, final}, coarse to fine. The time of `deadline_ms` began at `started`. A
   * deadline cuts codes first. If not even one code of all rows fits, there are fewer rows, at least one. A code depends on
   * seed, row, position and prefix only. `pause` lets messages come in; it throws to end the sampling.
   */
  async *sample({ n, seed, prefix, temperature, deadline_ms: within }, started, pause) {
    const { length, temperature: usual } = this.model;
    const deadline = within === null ? Infinity : started + within - MARGIN_MS;
    const rows = Array.from({ length: this.#rowsThatFit(n, deadline) }, () => [...prefix]);
    const latency = this.#latency(rows.length);
    const state = this.model.start(rows.length, prefix);
    for (let count = prefix.length; count < length; ) {
      const isFirst = count === prefix.length; // it feeds the whole prefix: its time says nothing about the others
      await this.#timed(isFirst ? null : latency.step, () => this.#step(state, rows, seed, temperature ?? usual));
      count++;
      await pause();
      if (count === length) break;
      if (this.#shouldRefine(latency, isFirst, count, deadline - this.now())) {
        const samples = await this.#timed(latency.decode, () => this.model.decode(rows));
        const final = !this.#fits(latency, deadline);
        this.#note(latency, rows.length);
        yield { rows, count, samples, final };
        if (final) return;
        await pause();
      } else if (!this.#fits(latency, deadline)) break;
    }
    const samples = await this.#timed(latency.decode, () => this.model.decode(rows));
    this.#note(latency, rows.length);
    yield { rows, count: rows[0].length, samples, final: true };
  }

  /** Return how many of n rows have time for a step and a decode. Nothing is known before the first request: all of them. */
  #rowsThatFit(n, deadline) {
    const { step, decode } = this.#latency(n);
    const measured = decode.isMeasured ? step.usual + decode.usual : Infinity;
    const expected = Math.min(measured, n * this.#rowMs); // the smaller one: too high a time would never be measured again
    const left = Math.max(0, deadline - this.now());
    return expected <= left ? n : Math.max(1, Math.floor((ROWS_SHARE * n * left) / expected));
  }

  #note({ step, decode }, n) {
    this.#rowMs = (step.usual + decode.usual) / n;
  }

  /** Sample the next code of every row. */
  async #step(state, rows, seed, temperature) {
    const size = this.model.codebook_size;
    const logits = await this.model.step(state, rows.map((codes) => codes.at(-1)));
    rows.forEach((codes, row) => {
      const stream = streamKey(key(seed), row, codes.length);
      codes.push(gumbelArgmax(logits.subarray(row * size, (row + 1) * size), temperature, stream));
    });
  }

  /** Whether one more step and the decode are expected to end in time: the deadline rule of anytime/sampling/budget.py. */
  #fits({ step, decode }, deadline) {
    return this.now() + step.longest + decode.longest <= deadline;
  }

  /** Whether to decode a refinement. With a deadline it must not cost codes: `left` has time for all of them. */
  #shouldRefine({ step, decode }, isFirst, count, left) {
    if (!decode.isMeasured) return true; // the deadline rule needs its time, and this may be the answer
    const { length } = this.model;
    const every = Math.ceil(length * Math.min(decode.usual / REFINING_MS, 1 / FEWEST_REFINEMENTS));
    return (isFirst || count % every === 0) && left >= (length - count) * step.longest + 2 * decode.longest;
  }

  #latency(n) {
    if (!this.#latencies.has(n)) this.#latencies.set(n, new Latency());
    return this.#latencies.get(n);
  }

  async #timed(times, work) {
    const began = this.now();
    const result = await work();
    times?.add(this.now() - began);
    return result;
  }
}
