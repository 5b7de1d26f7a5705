/**
 * Sends a fixed number of GET requests per second, each at its time regardless of earlier responses, and measures their
 * latencies.
 */
import { request } from "node:http";

/** Adds `{ atMs, ms }` per response to `samples` until `isOver(elapsedMs)`, and resolves after the last response. */
export function sendPaced({ port, agent, headers, path = "/", perSecond, isOver, samples }) {
  return new Promise((resolve) => {
    const startedMs = performance.now();
    let sent = 0;
    let open = 0;
    let hasEnded = false;
    const done = () => {
      open -= 1;
      if (open === 0 && hasEnded) resolve();
    };
    const timer = setInterval(() => {
      const elapsedMs = performance.now() - startedMs;
      if (isOver(elapsedMs)) {
        clearInterval(timer);
        hasEnded = true;
        if (open === 0) resolve();
        return;
      }
      for (; sent < elapsedMs * (perSecond / 1000); sent++) {
        open += 1;
        const atMs = performance.now();
        const outgoing = request({ port, host: "127.0.0.1", path, agent, headers }, (response) => {
          response.resume();
          response.on("end", () => {
            samples.push({ atMs, ms: performance.now() - atMs });
            done();
          });
        });
        outgoing.on("error", done);
        outgoing.end();
      }
    }, 5);
  });
}

export function percentile(values, share) {
  const sorted = [...values].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}

export function p99Of(samples) {
  return percentile(
    samples.map(({ ms }) => ms),
    0.99,
  );
}
