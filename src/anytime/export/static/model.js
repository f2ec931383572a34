// A model in ONNX: the prior with its KV cache, and the decoder. docs/export.md describes the files.

import { encodeFiles } from "./files.js";

const DECODE_ROWS = 32; // decoded at once: more would take more memory and no less time

/** Load a model of models.json. `runtime` is a promise of ONNX Runtime, `read` returns one of a file's bytes. */
export async function loadModel(runtime, description, read, options) {
  const { prior, decoder } = description.files;
  const [ort, ...files] = await Promise.all([runtime, read(prior.name), read(decoder.name)]);
  const sessions = [];
  for (const file of files) sessions.push(await ort.InferenceSession.create(file, options)); // it starts one at a time
  return new OnnxModel(ort, description, ...sessions);
}

class OnnxModel {
  #ort;
  #prior;
  #decoder;

  constructor(ort, description, prior, decoder) {
    [this.#ort, this.#prior, this.#decoder] = [ort, prior, decoder];
    Object.assign(this, description);
  }

  /** Return the state of n rows that begin with the same prefix. The cache is filled by the first step. */
  start(n, prefix) {
    const size = n * this.heads * this.length * this.head_dim;
    return { n, prefix, position: 0, cache: Array.from({ length: 2 * this.layers }, () => new Float32Array(size)) };
  }

  /** Return the logits of the next code of every row. The first step ignores `codes`: all rows share the prefix. */
  async step(state, codes) {
    if (state.position) return this.#run(state, codes, state.n, 1);
    const { n, prefix } = state;
    const one = this.start(1, prefix); // one row for all
    const logits = await this.#run(one, [this.start_token, ...prefix], 1, prefix.length + 1);
    state.position = one.position;
    state.cache.forEach((part, index) => repeat(one.cache[index], part));
    const last = logits.subarray(logits.length - this.codebook_size);
    return repeat(last, new Float32Array(n * this.codebook_size));
  }

  async #run(state, tokens, batch, count) {
    const { Tensor } = this.#ort;
    const shape = [batch, this.heads, this.length, this.head_dim];
    const feeds = { tokens: this.#integers(tokens, [batch, count]), position: this.#integers([state.position], [1]) };
    state.cache.forEach((part, index) => (feeds[`cache_${index}`] = new Tensor("float32", part, shape)));
    const { logits, new: entries } = await this.#prior.run(feeds);
    this.#extend(state, await entries.getData(), batch * this.heads, count);
    return logits.getData();
  }

  /** Write the keys and values of new tokens into the cache. */
  #extend(state, entries, heads, count) {
    const [from, size] = [state.position * this.head_dim, count * this.head_dim];
    let at = 0;
    for (const part of state.cache) {
      for (let head = 0; head < heads; head++, at += size) {
        part.set(entries.subarray(at, at + size), head * this.length * this.head_dim + from);
      }
    }
    state.position += count;
  }

  /** Return complete samples of rows of codes, as base64 files. */
  async decode(rows) {
    const files = [];
    for (let at = 0; at < rows.length; at += DECODE_ROWS) {
      const part = rows.slice(at, at + DECODE_ROWS);
      const { data } = await this.#decoder.run({ codes: this.#integers(part.flat(), [part.length, part[0].length]) });
      files.push(...encodeFiles(await data.getData(), this));
    }
    return files;
  }

  #integers(values, shape) {
    return new this.#ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
  }
}

/** Fill `to` with copies of `from`. */
function repeat(from, to) {
  for (let at = 0; at < to.length; at += from.length) to.set(from, at);
  return to;
}
