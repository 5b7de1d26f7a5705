/**
 * Compares the latencies of the gateway, Envoy and agentgateway: p50, p99 and p99.9 of GET and chat requests at 50%,
 * 80% and 100% of the highest rate, and p99 at 50% while a reload, large bodies, slow clients, or traces run.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { get } from "node:http";
import { connect } from "node:net";
import { gateways, present } from "../peers/programs.mjs";
import { median } from "../support/compare.mjs";
import { withContestants } from "../support/contestants.mjs";
import { percentiles, sendClosedLoop, sendOpenLoop } from "../support/latency-load.mjs";
import { httpRequest } from "../support/load.mjs";
import { isWanted } from "../support/rows.mjs";
import { startBackend, WORKLOADS } from "../support/workloads.mjs";

const COMPARED = ["envoy", "agentgateway", "gateway"];
const CONNECTIONS = 32;
const LOADS = [0.5, 0.8, 1];
const DISTURBED_LOAD = 0.5;
const PERCENTILES = [
  ["p50", "p50"],
  ["p99", "p99"],
  ["p999", "p99.9"],
];
const WARM_UP_MS = 4000;
const TAILS = [
  { of: "http", title: "GET", isDisturbed: true },
  { of: "llm", title: "chat", isDisturbed: false },
];

/** Resolves with rows in milliseconds. */
export async function benchTail({ quick = false, programs = [...present(), ...gateways()] } = {}) {
  const compared = programs.filter(({ name, kind = name }) => COMPARED.includes(kind));
  const rows = [];
  for (const tail of TAILS.filter(({ title }) => isWanted(`tail of ${title}`) || isWanted(title))) {
    const backend = await startBackend({ of: tail.of, isStepped: false });
    const selected = {
      programs: compared,
      values: { of: tail.of, backendPort: backend.port },
      configure: (program, place) =>
        program.name === "envoy" ? program.configure(place) : withAdmin(program.configure(place), place),
    };
    try {
      await withContestants(selected, async (contestants) => {
        rows.push(...(await compareLatencies(tail, contestants, quick)));
        if (tail.isDisturbed) rows.push(...(await compareDisturbed(tail, contestants, quick)));
      });
    } finally {
      await backend.stop();
    }
  }
  return rows;
}

/** Traces need the admin interface. */
function withAdmin(text, { adminPort }) {
  const config = JSON.parse(text);
  config.config.adminAddr = `127.0.0.1:${adminPort}`;
  return JSON.stringify(config);
}

async function compareLatencies({ of, title }, contestants, quick) {
  const request = WORKLOADS.find((workload) => workload.of === of && workload.request !== undefined).request;
  for (const contestant of contestants) {
    const load = { port: contestant.port, request, connections: CONNECTIONS };
    await sendClosedLoop({ ...load, durationMs: WARM_UP_MS * (contestant.program.warmUpShare ?? 1) });
    contestant.request = request;
    contestant.perSecond = (await sendClosedLoop({ ...load, durationMs: 2000 })).perSecond;
  }
  const rows = [];
  for (const share of LOADS) {
    const measured = await measureRounds(contestants, share, quick);
    for (const [key, shown] of PERCENTILES)
      rows.push(
        rowOf(
          `${title}, ${share * 100}% load: ${shown}`,
          contestants,
          ({ name }) => measured.get(name)?.[key],
          measured,
        ),
      );
  }
  const rates = contestants.map(({ name, perSecond }) => `${name} ${(perSecond / 1000).toFixed(1)}`);
  rows[0].notes = [`the highest rates in thousand requests per second were ${rates.join("; ")}.`];
  console.log(`  ${title}: ${rows[0].notes}`);
  for (const { title: name, values } of rows) print(name, values);
  return rows;
}

/** Interleaved rounds; the result of each percentile is the median of the rounds. */
async function measureRounds(contestants, share, quick, disturb) {
  const rounds = new Map(contestants.map(({ name }) => [name, []]));
  const errors = new Map(contestants.map(({ name }) => [name, 0]));
  for (let round = 0; round < (quick ? 2 : 3); round++)
    for (const contestant of contestants) {
      const { port, request, perSecond } = contestant;
      const load = { port, request, connections: CONNECTIONS, durationMs: quick ? 1000 : 2000 };
      const stop = await disturb?.(contestant);
      const results =
        share === 1
          ? await sendClosedLoop(load)
          : await sendOpenLoop({ ...load, connections: 256, perSecond: perSecond * share });
      await stop?.();
      rounds.get(contestant.name).push(percentiles(results.latencies));
      errors.set(contestant.name, errors.get(contestant.name) + results.errors);
    }
  return new Map(
    [...rounds].map(([name, all]) => [
      name,
      {
        ...Object.fromEntries(PERCENTILES.map(([key]) => [key, median(all.map((one) => one[key]))])),
        errors: errors.get(name),
      },
    ]),
  );
}

/** What runs beside the load. Each function starts it and returns what stops it, or undefined if it cannot run. */
const DISTURBANCES = [
  { title: "two reloads per second", start: startReloads, isPossible: ({ name }) => name !== "envoy" },
  { title: "32 MB/s of large bodies", start: startLargeBodies },
  { title: "20 slow clients", start: startSlowClients },
  { title: "traces of single requests", start: startTraces, isPossible: ({ name }) => name !== "envoy" },
];

async function compareDisturbed({ title }, contestants, quick) {
  const rows = [];
  for (const { title: what, start, isPossible = () => true } of DISTURBANCES) {
    const able = contestants.filter(isPossible);
    const measured = await measureRounds(able, DISTURBED_LOAD, quick, start);
    const row = rowOf(
      `${title}, ${DISTURBED_LOAD * 100}% load and ${what}: p99`,
      able,
      ({ name }) => measured.get(name)?.p99,
      measured,
    );
    print(row.title, row.values);
    rows.push(row);
  }
  return rows;
}

function startReloads({ file }) {
  const original = readFileSync(file, "utf8");
  let reloads = 0;
  const timer = setInterval(() => {
    const config = JSON.parse(original);
    const [route] = config.routes ?? config.binds[0].listeners[0].routes;
    route.name = `reload-${reloads++}`;
    writeFileSync(file, JSON.stringify(config));
  }, 500);
  return () => clearInterval(timer);
}

function startLargeBodies({ port }) {
  const timer = setInterval(() => {
    get({ port, host: "127.0.0.1", path: `/large?${8 * 1024 * 1024}`, agent: false }, (response) =>
      response.resume(),
    ).on("error", () => undefined);
  }, 250);
  return () => clearInterval(timer);
}

function startSlowClients({ port }) {
  const sockets = Array.from({ length: 20 }, () => {
    const socket = connect({ port, host: "127.0.0.1" });
    socket.on("error", () => undefined);
    socket.on("readable", () => undefined);
    socket.write(httpRequest({ path: `/large?${16 * 1024 * 1024}` }));
    return socket;
  });
  const timer = setInterval(() => {
    for (const socket of sockets) socket.read(Math.min(socket.readableLength, 16 * 1024));
  }, 100);
  return () => {
    clearInterval(timer);
    for (const socket of sockets) socket.destroy();
  };
}

/** Traces one request after another for as long as the load runs. */
function startTraces({ adminPort }) {
  const ended = new AbortController();
  const trace = async () => {
    while (!ended.signal.aborted) {
      const response = await fetch(`http://127.0.0.1:${adminPort}/debug/trace`, {
        method: "POST",
        signal: ended.signal,
      });
      await response.text();
    }
  };
  const running = trace().catch((error) => {
    if (!ended.signal.aborted) console.log(`traces ended: ${error.message}`);
  });
  return async () => {
    ended.abort();
    await running;
  };
}

function rowOf(title, contestants, readValue, measured = new Map()) {
  const errors = [...measured]
    .filter(([, { errors: count }]) => count > 0)
    .map(([name, { errors: count }]) => [name, count]);
  return {
    title,
    values: Object.fromEntries(contestants.map((contestant) => [contestant.name, readValue(contestant)])),
    errors: Object.fromEntries(errors),
  };
}

function print(title, values) {
  const shown = Object.entries(values).map(([name, value]) => `${name} ${value?.toFixed(2) ?? "-"}`);
  console.log(`  ${title.padEnd(60)} ${shown.join(", ")}`);
}
