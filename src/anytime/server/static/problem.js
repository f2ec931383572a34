/** A failure to show: one sentence, and the HTTP status if there is one. */
export class Problem extends Error {
  constructor(detail, status = 0) {
    super(detail);
    this.status = status;
  }
}
