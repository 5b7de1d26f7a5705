/**
 * Measures latencies over plain sockets, in two ways: a closed loop finds the highest rate that the machine reaches, and
 * an open loop sends at a fixed rate. In the open loop, slow responses do not delay later requests: a request that waits
 * for a free connection counts from the time it was due.
 */
import { connect } from "node:net";
import { quantile } from "./compare.mjs";
import { createResponseReader } from "./load.mjs";

const TICK_MS = 1;

/** Sends as fast as `connections` allow; resolves with the rate, the latencies in ms, and the failed requests. */
export async function sendClosedLoop({ port, request, connections, durationMs }) {
  const pool = openPool(port, connections);
  const startedMs = performance.now();
  const endMs = startedMs + durationMs;
  const loops = pool.connections.map(async (connection) => {
    while (performance.now() < endMs) await connection.send(request, performance.now());
  });
  await Promise.all(loops);
  const seconds = (performance.now() - startedMs) / 1000;
  pool.close();
  return { ...pool.results, perSecond: pool.results.latencies.length / seconds };
}

/** Sends `perSecond` requests for `durationMs`; resolves with the latencies in ms and the failed requests. */
export async function sendOpenLoop({ port, request, perSecond, connections, durationMs }) {
  const pool = openPool(port, connections);
  const free = [...pool.connections];
  const waiting = [];
  let unfinished = 0;
  let sent = 0;
  let allDone;
  const finished = new Promise((resolve) => {
    allDone = resolve;
  });
  let hasEnded = false;
  const dispatch = async (connection, dueMs) => {
    await connection.send(request, dueMs);
    unfinished -= 1;
    const next = waiting.shift();
    if (next !== undefined) void dispatch(connection, next);
    else free.push(connection);
    if (hasEnded && unfinished === 0) allDone();
  };
  const startedMs = performance.now();
  const timer = setInterval(() => {
    const nowMs = performance.now();
    const elapsedMs = Math.min(nowMs - startedMs, durationMs);
    for (; sent < (elapsedMs / 1000) * perSecond; sent++) {
      unfinished += 1;
      const connection = free.pop();
      if (connection === undefined) waiting.push(nowMs);
      else void dispatch(connection, nowMs);
    }
    if (elapsedMs < durationMs) return;
    clearInterval(timer);
    hasEnded = true;
    if (unfinished === 0) allDone();
  }, TICK_MS);
  await finished;
  pool.close();
  return pool.results;
}

/** The percentiles of a report, in ms. */
export function percentiles(latencies) {
  return { p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99), p999: quantile(latencies, 0.999) };
}

function openPool(port, count) {
  const results = { latencies: [], errors: 0 };
  const connections = Array.from({ length: count }, () => createConnection(port, results));
  return {
    results,
    connections,
    close() {
      for (const connection of connections) connection.close();
    },
  };
}

/** Opens its socket again after an error. `send` resolves when the response has ended or the request has failed. */
function createConnection(port, results) {
  let socket;
  let settle;
  const response = createResponseReader();
  const open = () => {
    const opened = connect(port, "127.0.0.1");
    opened.setNoDelay(true);
    opened.on("data", (chunk) => {
      if (!response.push(chunk)) return;
      const isFailure = response.status >= 400;
      response.reset();
      settle?.(isFailure);
    });
    opened.on("error", () => undefined);
    opened.on("close", () => {
      if (socket === opened) socket = undefined;
      response.reset();
      settle?.(true);
    });
    return opened;
  };
  return {
    send(request, dueMs) {
      return new Promise((resolve) => {
        settle = (isFailure) => {
          settle = undefined;
          if (isFailure) results.errors += 1;
          else results.latencies.push(performance.now() - dueMs);
          resolve();
        };
        socket ??= open();
        socket.write(request);
      });
    },
    close() {
      settle = undefined;
      socket?.destroy();
    },
  };
}
