/**
 * Measures, in a separate process, what each request pays to be explainable later, and what it pays while a trace
 * waits for a matching request.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");

const SCRIPT = `
import { Exchange } from "./src/core/exchange.ts";
import { compileExpression } from "./src/cel/expression.ts";
import { HeaderList } from "./src/http/headers.ts";
import { systemClock } from "./src/base/clock.ts";
import { FinishedRequest } from "./src/record/finished-request.ts";
import { createRequestHistory } from "./src/record/recorded-request.ts";
import { createRecentRequests } from "./src/record/recent-requests.ts";
import { createTraceHub } from "./src/record/trace/trace.ts";
import { createRedaction } from "./src/record/trace/redact.ts";

const headers = new HeaderList(["host", "a", "accept", "*/*", "authorization", "Bearer " + "b".repeat(600), "user-agent", "bench"]);
const exchangeOf = () =>
  new Exchange({
    id: "id",
    listener: "default",
    source: { address: "127.0.0.1", port: 1 },
    request: { method: "GET", scheme: "http", host: "a", path: "/", query: "", version: "1.1", headers, body: { kind: "none" } },
    startedAt: 0,
    startedMs: 0,
  });
const outcome = { status: 200, end: "complete", responseBytes: 320 } as const;
const COUNT = 300_000;

function measure(name: string, run: () => void): number {
  for (let i = 0; i < COUNT; i++) run();
  const before = process.cpuUsage();
  for (let i = 0; i < COUNT; i++) run();
  const used = process.cpuUsage(before);
  const micros = (used.user + used.system) / COUNT;
  console.log("  " + name.padEnd(52), micros.toFixed(3).padStart(7), "µs CPU");
  return micros;
}

function remembered(watcher: (exchange: Exchange) => undefined) {
  const recent = createRecentRequests({ clock: systemClock, redaction: createRedaction(), watcher, kept: undefined });
  return () => {
    const exchange = exchangeOf();
    recent.begin(exchange);
    recent.settled(new FinishedRequest(exchange, outcome, 1));
  };
}

console.log("\\nwhat a request pays (an exchange alone is subtracted by the reader)");
measure("an exchange alone", () => void exchangeOf());
measure("with being remembered, nobody waits", remembered(() => undefined));
const attributes = createRequestHistory(createRedaction(), Number.POSITIVE_INFINITY);
const claims = { iss: "https://id.example.com", sub: "alice", aud: "gateway", roles: ["admin", "user"], exp: 1 };
measure("with its attributes recorded for rehearsals", () => {
  const exchange = exchangeOf();
  exchange.attributes.jwt = claims;
  attributes.note(new FinishedRequest(exchange, outcome, 1));
});
const hub = createTraceHub<Exchange>();
const expression = compileExpression('request.path == "/never"');
hub.wait({
  count: 1,
  matches(exchange) {
    const result = expression.evaluate(exchange.celAttributes);
    return result.ok && result.value === true;
  },
  begin: () => ({ event: () => undefined, finished: () => undefined }),
});
measure("with being remembered, one waits for another path", remembered((exchange) => hub.take(exchange) as undefined));
`;

export async function benchRecent() {
  const folder = mkdtempSync(join(tmpdir(), "gateway-bench-"));
  try {
    const outfile = join(folder, "recent.mjs");
    await build({
      stdin: { contents: SCRIPT, resolveDir: root, loader: "ts" },
      bundle: true,
      platform: "node",
      format: "esm",
      outfile,
      logLevel: "error",
    });
    execFileSync(process.execPath, [outfile], { stdio: "inherit" });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
