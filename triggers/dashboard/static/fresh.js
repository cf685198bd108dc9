// Reads something again when it is out of date: at most once in `rest` ms, and every `every` ms.

const REST_MS = 1000;
const RETRY_MS = 5000; // after the lab did not answer

export class Fresh {
  // `source` is { read(), show(answer), failed(problem)?, every?, rest? }; `ended` is an AbortSignal.
  constructor(source, ended) {
    [this.source, this.ended] = [source, ended];
    this.reading = this.again = this.atOnce = false;
    this.readAt = -Infinity;
    this.timer = null;
    const interval = source.every ? setInterval(() => this.soon(), source.every) : null;
    ended.addEventListener("abort", () => {
      clearInterval(interval);
      clearTimeout(this.timer);
    });
  }

  soon() {
    if (this.reading) this.again = true;
    else if (this.timer === null) {
      const wait = Math.max(0, this.readAt + (this.source.rest ?? REST_MS) - performance.now());
      this.timer = setTimeout(() => this.now(), wait);
    }
  }

  async now() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.ended.aborted) return;
    if (this.reading) {
      this.atOnce = true; // what is being read is out of date already
      return;
    }
    this.reading = true;
    this.readAt = performance.now();
    try {
      const answer = await this.source.read();
      if (!this.ended.aborted && !this.atOnce) this.source.show(answer);
    } catch (problem) {
      if (!this.ended.aborted && !this.atOnce) {
        this.source.failed?.(problem);
        if ((problem.status ?? 500) >= 500) this.timer = setTimeout(() => this.now(), RETRY_MS);
      }
    } finally {
      const { atOnce, again } = this;
      this.reading = this.again = this.atOnce = false;
      if (atOnce) this.now();
      else if (again && !this.ended.aborted) this.soon();
    }
  }
}
