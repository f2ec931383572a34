// Latency estimates of one model and number of rows: how long the next step and decode will take.

const WINDOW = 12; // last measurements that an estimate is read from

/** The times of one kind of work, in milliseconds; 0 before the first measurement. */
class Times {
  #last = [];

  add(milliseconds) {
    this.#last = [...this.#last, milliseconds].slice(-WINDOW);
  }

  get isMeasured() {
    return this.#last.length > 0;
  }

  get usual() {
    return [...this.#last].sort((a, b) => a - b)[this.#last.length >> 1] ?? 0;
  }

  /** What to expect where being late matters: other programs delay some of the work. */
  get longest() {
    return Math.max(0, ...this.#last);
  }
}

export class Latency {
  step = new Times();
  decode = new Times();
}
