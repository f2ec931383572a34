// Sampling from logits with the noise of anytime/sampling/gumbel.py: a hash of seed, row, position and category.
// The uniform numbers are equal to Python's bit for bit; a logarithm may differ by one rounding, which can flip a tie only.

const { fround, imul, log } = Math;
const GOLDEN = 0x9e3779b9;
const WORD = 2 ** 32;

/** Mix the bits of a 32-bit word. */
function mix(x) {
  x = imul(x ^ (x >>> 16), 0x7feb352d);
  x = imul(x ^ (x >>> 15), 0x846ca68b);
  return x ^ (x >>> 16);
}

const absorb = (word, value) => mix(((word ^ value) + GOLDEN) | 0);

/** Return two words that depend on all bits of a seed, which is a whole number below 2^53. */
export function key(seed) {
  const [low, high] = [seed % WORD | 0, Math.floor(seed / WORD) | 0];
  return [absorb(low, high), absorb(low ^ 0x5851f42d, mix(high))];
}

/** Return the key of a row and a position, in whose stream the categories are. */
export function streamKey([first, second], row, position) {
  return [absorb(absorb(first, row), position), absorb(absorb(second, row), position)];
}

/** Return a uniform float32 number strictly between 0 and 1. */
export function uniform([first, second], category) {
  const bits = mix(mix((imul(category, GOLDEN) + first) | 0) ^ second);
  return ((bits >>> 9) + 0.5) * 2 ** -23; // exact in float32: 23 bits and a half
}

/** Return standard Gumbel noise in float32. */
export function gumbel(stream, category) {
  return fround(-log(fround(-log(uniform(stream, category)))));
}

/** Return the next code of a row: the argmax of logits / temperature plus noise, the first one of equals. */
export function gumbelArgmax(logits, temperature, stream) {
  const divisor = fround(temperature);
  let [best, most] = [0, -Infinity];
  for (let category = 0; category < logits.length; category++) {
    const value = fround(fround(logits[category] / divisor) + gumbel(stream, category));
    if (value > most) [best, most] = [category, value];
  }
  return best;
}
