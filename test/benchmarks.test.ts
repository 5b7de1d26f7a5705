/**
 * The benchmark page and the table in the README show the numbers of the run in `docs/benchmarks.json`, and a report can
 * be rendered from incomplete data.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const root = process.cwd();
const read = (path: string): string => readFileSync(join(root, path), "utf8");

interface Row {
  readonly title: string;
  readonly values: Record<string, number>;
  readonly errors?: Record<string, number>;
  readonly notes?: readonly string[];
}

interface Section {
  readonly id: string;
  readonly title: string;
  readonly unit?: string;
  readonly decimals: number;
  readonly text: string;
  readonly columns: readonly string[];
  readonly rows: readonly Row[];
  readonly failure?: string;
}

interface Report {
  readonly date: string;
  readonly minutes: number;
  readonly command: string;
  readonly isQuick: boolean;
  readonly machine: { processor: string; cores: number; memoryGiB: number; system: string; loadAverage: number };
  readonly programs: readonly { name: string; release: string; build?: string }[];
  readonly absent: readonly string[];
  readonly sections: readonly Section[];
}

async function load<T>(path: string): Promise<T> {
  return (await import(pathToFileURL(join(root, path)).href)) as T;
}

const published = (): Report => JSON.parse(read("docs/benchmarks.json")) as Report;
const STALE = "run `npm run bench -- report --docs --from=docs/benchmarks.json`";

test("the benchmark page shows the numbers of docs/benchmarks.json", async () => {
  const { renderDocsPage } = await load<{ renderDocsPage(data: Report): string }>("bench/report/publish.mjs");
  assert.ok(read("docs/benchmarks.md") === renderDocsPage(published()), `docs/benchmarks.md is stale: ${STALE}`);
});

test("the README quotes the numbers of docs/benchmarks.json", async () => {
  const { replaceQuote } = await load<{ replaceQuote(readme: string, data: Report): string }>(
    "bench/report/publish.mjs",
  );
  const readme = read("README.md");
  assert.ok(readme === replaceQuote(readme, published()), `the table in README.md is stale: ${STALE}`);
  const changed = structuredClone(published());
  for (const { rows } of changed.sections)
    for (const row of rows) for (const name of Object.keys(row.values)) row.values[name] = 123_456;
  assert.match(replaceQuote(readme, changed), /123456/);
});

const PARTIAL: Report = {
  date: "2026-01-02",
  minutes: 3,
  command: 'BENCH_ROWS="GET" npm run bench -- report',
  isQuick: true,
  machine: { processor: "Any <CPU>", cores: 2, memoryGiB: 8, system: "Linux 6", loadAverage: 3 },
  programs: [
    { name: "nginx", release: "1.22" },
    { name: "gateway, Node 20", release: "this build" },
  ],
  absent: ["envoy"],
  sections: [
    {
      id: "cpu",
      title: "CPU time",
      unit: "µs",
      decimals: 1,
      text: "Per `operation`.",
      columns: ["nginx", "gateway, Node 20"],
      rows: [
        { title: "GET", values: { nginx: 21.44, "gateway, Node 20": 137.4 }, errors: { nginx: 3 } },
        { title: "MCP", values: { "gateway, Node 20": 60 } },
      ],
    },
    {
      id: "y",
      title: "Latency",
      decimals: 2,
      text: "Of a request.",
      columns: ["nginx"],
      rows: [{ title: "GET: p99, ms", values: { nginx: 0.5 }, notes: ["nginx resumed 10% of the sessions."] }],
    },
    { id: "x", title: "Streams", unit: "KB", decimals: 0, text: "", columns: [], rows: [], failure: "no <memory>" },
  ],
};

test("a report has the machine, the missing programs, the failed requests, and the sections that failed", async () => {
  const { renderMarkdown } = await load<{ renderMarkdown(data: Report): string }>("bench/report/markdown.mjs");
  const page = renderMarkdown(PARTIAL);
  for (const line of [
    "Machine: Any <CPU>, 2 cores, 8 GiB, Linux 6; the load average was 3 at the start.",
    "Not installed, so without a column: envoy.",
    "| Work | nginx | Gateway, Node 20 |",
    "| GET | 21.4 | 137 |",
    "| MCP | – | 60.0 |",
    "- GET: 3 requests through nginx failed.",
    "Per `operation`. In µs; lower is better.",
    "Of a request. Lower is better.",
    "- GET: p99, ms: nginx resumed 10% of the sessions.",
    "Not measured: no <memory>",
    "| nginx | 1.22 | as installed |",
  ])
    assert.ok(page.split("\n").includes(line), line);
});

test("the HTML page escapes its values, has one chart per compared row, and runs no script", async () => {
  const { renderHtml } = await load<{ renderHtml(data: Report): string }>("bench/report/html.mjs");
  const page = renderHtml(PARTIAL);
  assert.match(page, /Any &lt;CPU&gt;/);
  assert.match(page, /no &lt;memory&gt;/);
  assert.match(page, /Per <code>operation<\/code>\./);
  assert.equal(page.match(/<svg /g)?.length, 1);
  assert.match(page, /class="ours" x="120" y="24" width="204\.0"/);
  assert.doesNotMatch(page, /<script|https?:|<CPU>/);
  assert.match(page, /prefers-color-scheme: dark/);
});

test("the open loop sends every request that is due, although the first response is late", async (t) => {
  const { sendOpenLoop } = await load<{
    sendOpenLoop(options: object): Promise<{ latencies: number[]; errors: number }>;
  }>("bench/support/latency-load.mjs");
  const [firstArrived, arrive] = signal();
  const [released, release] = signal();
  let requests = 0;
  const server = createServer(async (_, response) => {
    requests += 1;
    if (requests === 1) {
      arrive();
      await released;
    }
    response.end("ok");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const { port } = server.address() as AddressInfo;
  const request = Buffer.from("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
  const sent = sendOpenLoop({ port, request, perSecond: 1000, connections: 1, durationMs: 5 });
  await firstArrived;
  const arrivedMs = performance.now();
  await new Promise((resolve) => setImmediate(resolve));
  const heldMs = performance.now() - arrivedMs;
  release();
  const { latencies, errors } = await sent;
  assert.deepEqual({ requests, sent: latencies.length, errors }, { requests: 5, sent: 5, errors: 0 });
  assert.ok((latencies[0] as number) >= heldMs);
});

function signal(): [promise: Promise<void>, resolve: () => void] {
  let resolveSignal: () => void = () => undefined;
  const promise = new Promise<void>((resolve) => {
    resolveSignal = resolve;
  });
  return [promise, resolveSignal];
}
