/**
 * The history database: what it stores equals what clients count, for LLM, MCP and HTTP requests of every result, and
 * stays correct through migrations, retention, deletion, and several writers. Each scenario runs on both databases.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { boundedKey } from "../../src/base/bounded-key.ts";
import { systemClock } from "../../src/base/clock.ts";
import type { Outcome } from "../../src/core/policy.ts";
import { NewerSchema, UnstorableRow } from "../../src/record/history/engine.ts";
import { openHistory } from "../../src/record/history/history.ts";
import { COLUMNS, type RowValues } from "../../src/record/history/history-row.ts";
import { MIGRATIONS, migrate, schemaVersion } from "../../src/record/history/migrations.ts";
import {
  deleteSubject,
  expireSome,
  readSpending,
  readUsage,
  type UsageQuery,
} from "../../src/record/history/queries.ts";
import { createHistoryRecorder } from "../../src/record/history-record.ts";
import { silentLogger } from "../../src/record/log/logger.ts";
import { createMetrics } from "../../src/record/log/metrics.ts";
import { createRedaction } from "../../src/record/trace/redact.ts";
import { eventually } from "../support/eventually.ts";
import { anExchange, finishedRequest } from "../support/exchange.ts";
import { gwctl } from "../support/gwctl.ts";
import { startChatProvider } from "../support/history/chat-provider.ts";
import { HISTORY_DATABASES, openedDatabase, usageOf } from "../support/history/history-database.ts";
import { aRow, writeRows } from "../support/history/history-row.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { startToolsServer } from "../support/mcp/tools-server.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const HOUR = 3_600_000;
const NOW = Date.parse("2026-11-17T12:30:00Z");
const ALL: UsageQuery = { by: [], sinceMs: 0, untilMs: NOW + HOUR, filter: {}, limit: 100, offset: 0 };

/** Counts on the side of the client, by the names that `/debug/usage` uses. */
class ClientCount {
  readonly #counts = new Map<string, Record<string, number>>();

  add(group: readonly string[], result: string, sums: Readonly<Record<string, number>> = {}): void {
    const key = group.join("|");
    const counts = this.#counts.get(key) ?? {};
    this.#counts.set(key, counts);
    for (const [name, amount] of Object.entries({ requests: 1, [result]: 1, ...sums }))
      counts[name] = (counts[name] ?? 0) + amount;
  }

  get groups(): Record<string, Record<string, number>> {
    return Object.fromEntries([...this.#counts].sort());
  }
}

const COUNTED = ["requests", "ok", "rejected", "failed", "aborted", "inputTokens", "outputTokens"] as const;

for (const kind of HISTORY_DATABASES) {
  const { name, skip } = kind;

  test(`${name}: usage equals what clients count in mixed traffic`, { skip }, async (t) => {
    const database = await kind.create(t);
    const llm = await startChatProvider(t);
    const web = await backendFor(t, (request, response) => {
      if (request.url === "/reset") request.socket.destroy();
      else response.writeHead(Number(request.url?.slice(1))).end("x");
    });
    const tools = await startToolsServer([
      { name: "read", inputSchema: { type: "object" } },
      { name: "drop", inputSchema: { type: "object" } },
    ]);
    t.after(tools.close);
    const gateway = await gatewayFor(
      t,
      `
config: { adminAddr: "127.0.0.1:0", history: ${database.settings()} }
gateways: { default: { port: 0 } }
routes:
  - name: llm
    matches: [{ path: { pathPrefix: /v1 } }]
    policies:
      apiKey: { keys: [{ key: key-of-ada-0000, metadata: { user_id: ada, team: red } }, { key: key-of-bob-0000, metadata: { user_id: bob, team: blue } }] }
      retry: { attempts: 1, backoff: 1ms, codes: [503] }
    backends: [{ ai: { name: llm, provider: { openAICompatible: { baseUrl: "http://${llm.host}/v1" } } } }]
  - name: tools
    matches: [{ path: { exact: /mcp } }]
    policies: { mcpAuthorization: { rules: ['mcp.tool.name == "read"'] } }
    backends: [{ mcp: { targets: [{ name: files, mcp: { url: "${tools.url}" } }] } }]
  - name: web
    matches: [{ path: { pathPrefix: / } }]
    backends: [{ host: "${web.host}" }]
`,
    );
    const url = gateway.url();
    const expected = new ClientCount();
    const tokens = { inputTokens: 7, outputTokens: 3 };

    async function chat(key: string, body: Readonly<Record<string, unknown>>): Promise<Response> {
      return fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
        body: JSON.stringify({ messages: [{ role: "user", content: "hi" }], ...body }),
      });
    }
    for (const [user, team] of [
      ["ada", "red"],
      ["bob", "blue"],
      ["ada", "red"],
    ] as const) {
      const key = `key-of-${user}-0000`;
      const group = (model: string) => [team, user, "llm", model, ""];
      for (const model of ["plain", "flaky"]) {
        const response = await chat(key, { model });
        await response.text();
        assert.equal(response.status, 200);
        expected.add(group(model), "ok", tokens);
      }
      await (await chat(key, { model: "streamed", stream: true })).text();
      expected.add(group("streamed"), "ok", tokens);
      const broken = await chat(key, { model: "broken" });
      await broken.text();
      expected.add(group("broken"), broken.status >= 500 ? "failed" : "rejected");
      const leaving = new AbortController();
      const endless = await fetch(`${url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
        body: JSON.stringify({ model: "endless", stream: true, messages: [{ role: "user", content: "hi" }] }),
        signal: leaving.signal,
      });
      await endless.body?.getReader().read();
      leaving.abort();
      expected.add(group("endless"), "aborted");
    }
    const refused = await chat("wrong", { model: "plain" });
    await refused.text();
    assert.equal(refused.status, 401);
    expected.add(["", "", "llm", "", ""], "rejected");

    for (const [tool, result] of [
      ["read", "ok"],
      ["drop", "rejected"],
      ["read", "ok"],
    ] as const) {
      await modernPost(`${url}/mcp`, "tools/call", { name: tool, arguments: {} });
      expected.add(["", "", "tools", "", tool], result);
    }
    for (const [path, result] of [
      ["200", "ok"],
      ["404", "rejected"],
      ["500", "failed"],
      ["reset", "failed"],
    ] as const) {
      const response = await fetch(`${url}/${path}`);
      await response.text();
      expected.add(["", "", "web", "", ""], result);
    }

    // The end of a stream that the client left is noticed a moment later.
    const wanted = Object.values(expected.groups).reduce((sum, { requests = 0 }) => sum + requests, 0);
    await eventually("all rows are stored", async () => (await usageOf(gateway.adminUrl, "")).total.requests >= wanted);
    const report = await usageOf(gateway.adminUrl, "by=team,user,model,tool&since=2h&limit=1000");
    const byRoute = await Promise.all(
      ["llm", "tools", "web"].map(async (route) => {
        const { rows } = await usageOf(gateway.adminUrl, `by=team,user,model,tool&since=2h&route=${route}`);
        return rows.map((row) => [[row.team, row.user, route, row.model, row.tool].join("|"), row] as const);
      }),
    );
    const seen = Object.fromEntries(
      byRoute
        .flat()
        .sort(([one], [other]) => (one < other ? -1 : 1))
        .map(([key, row]) => [
          key,
          Object.fromEntries(COUNTED.filter((sum) => row[sum] !== 0).map((sum) => [sum, row[sum]])),
        ]),
    );
    // Aborted streams have an estimate of what was sent, which a client cannot know.
    for (const row of Object.values(seen))
      if (row.aborted !== undefined) for (const sum of ["inputTokens", "outputTokens"]) delete row[sum];
    assert.deepEqual(seen, expected.groups);
    assert.equal(report.total.requests, wanted);
  });

  test(`${name}: an older request is listed and explained from the database`, { skip }, async (t) => {
    const database = await kind.create(t);
    const yaml = `
config: { adminAddr: "127.0.0.1:0", history: ${database.settings()} }
gateways: { default: { port: 0 } }
routes: [{ name: web, policies: { directResponse: { status: 418, body: no } } }]
`;
    const first = await gatewayFor(t, yaml);
    await (await fetch(`${first.url()}/tea?token=s3cret-value-000`, { headers: { "x-request-id": "tea-1" } })).text();
    await eventually("stored", async () => (await usageOf(first.adminUrl, "")).total.requests === 1);
    await first.close();
    const second = await gatewayFor(t, yaml);
    const found = await (await fetch(`${second.adminUrl}/debug/requests?id=tea-1`)).json();
    const { requests } = found as { requests: { path: string; route: string; status: number; story: string[] }[] };
    assert.deepEqual(
      requests.map(({ path, route, status }) => ({ path, route, status })),
      [{ path: "/tea", route: "web", status: 418 }],
    );
    assert.ok((requests[0]?.story.length ?? 0) > 0);
    const listed = await (await fetch(`${second.adminUrl}/debug/requests?before=2100-01-01T00:00:00Z`)).json();
    assert.deepEqual(
      (listed as { requests: { id: string }[] }).requests.map(({ id }) => id),
      ["tea-1"],
    );
    assert.doesNotMatch(JSON.stringify([found, listed]), /s3cret/);
    assert.equal((await fetch(`${second.adminUrl}/debug/requests?id=other`)).status, 404);
  });

  test(`${name}: writing a batch again changes nothing`, { skip }, async (t) => {
    const engine = await openedDatabase(t, kind);
    const rows = Array.from({ length: 250 }, (_, i) =>
      aRow({ id: `r${i}`, time: NOW, input_tokens: 2, team: `t${i % 3}` }),
    );
    assert.equal(await writeRows(engine, rows), 250);
    assert.equal(await writeRows(engine, rows), 0);
    assert.equal(await writeRows(engine, [aRow({ id: "new", time: NOW })]), 1);
    const { total } = await readUsage(engine.reader, ALL);
    assert.deepEqual([total.requests, total.inputTokens, total.ok], [251, 500, 251]);
  });

  test(`${name}: usage is grouped, filtered, limited to a range, and paged`, { skip }, async (t) => {
    const engine = await openedDatabase(t, kind);
    const at = (hours: number): number => NOW - hours * HOUR;
    await writeRows(engine, [
      aRow({ id: "1", time: at(0), team: "red", model: "a", cost_nano: 5 }),
      aRow({ id: "2", time: at(1), team: "red", model: "b", cost_nano: 1_500_000_000 }),
      aRow({ id: "3", time: at(30), team: "blue", subject: "ada", result: "failed" }),
    ]);
    const query = async (more: Partial<UsageQuery>) => readUsage(engine.reader, { ...ALL, ...more });
    const byTeam = await query({ by: ["team"] });
    assert.deepEqual(
      byTeam.rows.map(({ team, requests, cost, failed }) => [team, requests, cost, failed]),
      [
        ["red", 2, 1.500000005, 0],
        ["blue", 1, 0, 1],
      ],
    );
    const pages = [await query({ by: ["model"], limit: 2 }), await query({ by: ["model"], limit: 2, offset: 2 })];
    assert.deepEqual(
      pages.map(({ rows }) => rows.map(({ model }) => model)),
      [["b", "a"], [""]],
    );
    assert.deepEqual(
      pages.map(({ next }) => next),
      [2, null],
    );
    assert.equal((await query({ sinceMs: at(2) })).total.requests, 2);
    assert.equal((await query({ untilMs: at(2) })).total.requests, 1);
    assert.equal((await query({ filter: { user: "ada" } })).total.requests, 1);
    assert.equal((await query({ filter: { user: "" } })).total.requests, 2);
    const days = await query({ by: ["day"] });
    assert.deepEqual(
      days.rows.map(({ day, requests }) => [day, requests]),
      [
        ["2026-11-16T00:00:00.000Z", 1],
        ["2026-11-17T00:00:00.000Z", 2],
      ],
    );
  });

  test(`${name}: rows and usage are removed after their retention, in steps`, { skip }, async (t) => {
    const engine = await openedDatabase(t, kind);
    const old = Array.from({ length: 2_500 }, (_, i) => aRow({ id: `old${i}`, time: NOW - 40 * 24 * HOUR }));
    await writeRows(engine, old.slice(0, 1_500));
    await writeRows(engine, old.slice(1_500));
    await writeRows(engine, [aRow({ id: "new", time: NOW })]);
    const retention = { rowsMs: 30 * 24 * HOUR, usageMs: 60 * 24 * HOUR };
    const steps: boolean[] = [];
    do steps.push(await expireSome(engine, retention, NOW));
    while (steps.at(-1));
    assert.deepEqual(steps, [true, true, false]);
    const count = async () => Number((await engine.reader.all("SELECT COUNT(*) AS n FROM gateway_requests"))[0]?.n);
    assert.equal(await count(), 1);
    assert.equal((await readUsage(engine.reader, ALL)).total.requests, 2_501);
    await expireSome(engine, { ...retention, usageMs: 30 * 24 * HOUR }, NOW);
    assert.equal((await readUsage(engine.reader, ALL)).total.requests, 1);
  });

  test(`${name}: deleting a user keeps the totals of teams`, { skip }, async (t) => {
    const engine = await openedDatabase(t, kind);
    await writeRows(engine, [
      aRow({ id: "1", time: NOW, subject: "ada", team: "red", cost_nano: 10 }),
      aRow({ id: "2", time: NOW, subject: "ada", key: "ada", team: "red", cost_nano: 10 }),
      aRow({ id: "3", time: NOW, subject: "bob", team: "red", cost_nano: 10 }),
    ]);
    assert.equal(await deleteSubject(engine, "ada"), 2);
    const rows = await engine.reader.all("SELECT subject FROM gateway_requests");
    assert.deepEqual(
      rows.map(({ subject }) => subject),
      ["bob"],
    );
    const { rows: users } = await readUsage(engine.reader, { ...ALL, by: ["user", "key"] });
    assert.deepEqual(users.map(({ user, key, requests }) => `${user} ${key} ${requests}`).sort(), [
      "(deleted)  1",
      "(deleted) (deleted) 1",
      "bob  1",
    ]);
    assert.equal((await readUsage(engine.reader, { ...ALL, filter: { team: "red" } })).total.cost, 3e-8);
  });

  test(`${name}: users with any name are recorded, and can be deleted by it`, { skip }, async (t) => {
    const engine = await openedDatabase(t, kind);
    const names = [
      "ada",
      "x".repeat(255),
      "😀".repeat(120),
      `${"A".repeat(199)}😀`,
      "a\nb",
      "c\0d",
      "\0\n",
      "a\ud800b",
      "'; DROP TABLE gateway_requests; --",
      '"q"\\',
      "%",
      "/=ada",
      "\u2028",
    ];
    const rows: RowValues[] = [];
    const record = createHistoryRecorder(createRedaction(), undefined, (row) => void rows.push(row));
    for (const sub of names) {
      const exchange = anExchange({ jwt: { sub } });
      exchange.limits.spent = [{ account: `m/tokens/month/2026-11/=${boundedKey(sub)}`, amount: 1 }];
      record(finishedRequest(exchange, { status: 200, end: "complete", responseBytes: 0 } as Outcome, 1));
    }
    assert.equal(await writeRows(engine, rows), names.length);
    const left = async () => (await engine.rows.stored()).rows;
    for (const [i, sub] of names.entries()) {
      assert.equal(await deleteSubject(engine, sub), 1, JSON.stringify(sub));
      assert.equal(await left(), names.length - i - 1, JSON.stringify(sub));
    }
    assert.deepEqual(await readSpending(engine.reader), []);
    const { rows: users } = await readUsage(engine.reader, { ...ALL, untilMs: Date.now() + HOUR, by: ["user"] });
    assert.deepEqual(
      users.map(({ user, requests }) => `${user} ${requests}`),
      [`(deleted) ${names.length}`],
    );

    // Only PostgreSQL limits the size of a key.
    const wide = Array.from({ length: 200 }, (_, i) => String.fromCharCode(0x4e00 + ((i * 7_919) % 20_000))).join("");
    const large = writeRows(engine, [aRow({ id: "l", subject: wide, team: wide, key: wide, model: wide, tool: wide })]);
    if (engine.kind === "postgres") await assert.rejects(large, UnstorableRow);
    else assert.equal(await large, 1);
  });

  test(`${name}: a deletion includes the rows that wait in memory`, { skip }, async (t) => {
    const { folder, settings } = await kind.create(t);
    const { postgres } = JSON.parse(settings()) as { postgres?: string };
    const retention = { rowsMs: HOUR, usageMs: HOUR };
    const history = openHistory(
      { folder, postgres, retention, maxQueueRows: 10_000, maxSpoolBytes: 1e7 },
      { clock: systemClock, logger: silentLogger, metrics: createMetrics(), redact: (text) => text },
    );
    t.after(() => history.close());
    await history.started;
    const rows = 3_500;
    for (let i = 0; i < rows; i++)
      history.add(aRow({ id: `r${i}`, subject: i % 7 === 0 ? "grace" : "ada", time: Date.now() }));
    assert.deepEqual(await history.ask({ kind: "delete", subject: "ada" }), { deleted: rows - rows / 7 });
    assert.equal((await history.ask({ kind: "stored" })).rows, rows / 7);
  });

  test(`${name}: missing migrations run once, and a newer schema is refused`, { skip }, async (t) => {
    const engine = await openedDatabase(t, kind);
    await writeRows(engine, [aRow({ id: "1", time: NOW })]);
    const next = [...MIGRATIONS[engine.kind], ["ALTER TABLE gateway_usage ADD COLUMN region TEXT NOT NULL DEFAULT ''"]];
    await migrate(engine, next);
    await migrate(engine, next);
    assert.equal(await schemaVersion(engine.reader), next.length);
    assert.deepEqual(await engine.reader.all("SELECT ok, region FROM gateway_usage"), [{ ok: 1, region: "" }]);
    await assert.rejects(migrate(engine), NewerSchema);
    await assert.rejects(migrate(engine), /has schema version \d+, but this gateway supports up to version \d+/);
  });

  test(`${name}: a database of version 1 keeps its rows when it is migrated`, { skip }, async (t) => {
    const engine = await (await kind.create(t)).open();
    t.after(() => engine.close());
    await migrate(engine, MIGRATIONS[engine.kind].slice(0, 1));
    const names = COLUMNS.filter((column) => column !== "charges" && column !== "details");
    const values = aRow({ id: "1", time: NOW, team: "red" }).slice(0, names.length);
    await engine.transaction((sql) =>
      sql.all(
        `INSERT INTO gateway_requests (${names.join(", ")}) VALUES (${names.map((_, i) => `$${i + 1}`).join(", ")})`,
        values,
      ),
    );
    await migrate(engine);
    assert.equal(await schemaVersion(engine.reader), MIGRATIONS[engine.kind].length);
    const charges = JSON.stringify([["all/tokens/month/2026-11/-", 12]]);
    const details = JSON.stringify({ rules: [{ kind: "allow", rule: "false", isMet: false }] });
    for (const id of ["1", "2"]) await writeRows(engine, [aRow({ id, time: NOW, charges, details })]);
    assert.deepEqual(await engine.reader.all("SELECT id, team, charges, details FROM gateway_requests ORDER BY id"), [
      { id: "1", team: "red", charges: "", details: "" },
      { id: "2", team: "", charges, details },
    ]);
    assert.deepEqual(await readSpending(engine.reader), [{ account: "all/tokens/month/2026-11/-", amount: 12 }]);
  });

  test(`${name}: an older gateway does not start on a newer schema`, { skip }, async (t) => {
    const database = await kind.create(t);
    const engine = await database.open();
    await migrate(engine, [...MIGRATIONS[engine.kind], []]);
    await engine.close();
    const yaml = `config: { adminAddr: "127.0.0.1:0", history: ${database.settings()} }\ngateways: { default: { port: 0 } }\n`;
    await assert.rejects(gatewayFor(t, yaml), (error: { lines?: readonly string[] }) => {
      assert.match(error.lines?.join("\n") ?? "", /config\.yaml:1:.*history: the history database has schema version/);
      return true;
    });
  });
}

test("without `config.history` the endpoint says how to turn it on", async (t) => {
  const gateway = await gatewayFor(t, "gateways: { default: { port: 0 } }\n");
  const response = await fetch(`${gateway.adminUrl}/debug/usage`);
  assert.equal(response.status, 404);
  assert.match(await response.text(), /config\.history/);
});

test("wrong parameters of /debug/usage are named", async (t) => {
  const [kind] = HISTORY_DATABASES;
  const database = await kind?.create(t);
  const gateway = await gatewayFor(
    t,
    `config: { adminAddr: "127.0.0.1:0", history: ${database?.settings()} }\ngateways: { default: { port: 0 } }\n`,
  );
  for (const [query, message] of [
    ["by=color", /cannot group by "color"; expected team/],
    ["by=team,team", /up to 4 different names/],
    ["since=yesterday", /since and until are a time/],
    ["since=1d&until=2d", /since must be before until/],
    ["colour=1", /unknown parameter "colour"/],
    ["limit=0", /limit must be a whole number/],
  ] as const) {
    const response = await fetch(`${gateway.adminUrl}/debug/usage?${query}`);
    assert.equal(response.status, 400, query);
    assert.match(await response.text(), message);
  }
});

test("gwctl reports, lists, explains, and deletes what the database has", async (t) => {
  const [kind] = HISTORY_DATABASES;
  const database = await kind?.create(t);
  const gateway = await gatewayFor(
    t,
    `
config: { adminAddr: "127.0.0.1:0", history: ${database?.settings({ team: "'=' + apiKey.department" })} }
gateways: { default: { port: 0 } }
routes:
  - name: web
    policies:
      apiKey: { keys: [{ key: key-of-ada-0000, metadata: { user_id: ada, department: sales } }] }
      directResponse: { status: 200, body: hi }
`,
  );
  const ask = async (id: string, key: string): Promise<void> => {
    const headers = { "x-request-id": id, authorization: `Bearer ${key}` };
    await (await fetch(`${gateway.url()}/page`, { headers })).text();
  };
  await ask("first", "key-of-ada-0000");
  await ask("second", "key-of-ada-0000");
  await ask("third", "wrong-key-00000");
  await eventually("stored", async () => (await usageOf(gateway.adminUrl, "")).total.requests === 3);
  const port = new URL(gateway.adminUrl).port;
  const run = async (...args: string[]) => {
    const { code, stdout, stderr } = await gwctl([...args, "-p", port]);
    assert.equal(code, 0, stderr);
    return stdout;
  };
  const shown = await run("usage", "--by", "team,user", "--since", "1d");
  assert.match(shown, /TEAM +USER +REQUESTS +OK +REJECTED/);
  assert.match(shown, /=sales +ada +2 +2 +0/);
  assert.match(shown, /total +3 +2 +1/);
  const csv = await run("usage", "--by", "team,user", "--filter", "user=ada", "-o", "csv");
  // A spreadsheet must not run the name of a team as a formula.
  assert.deepEqual(
    csv
      .split("\n")
      .slice(0, 2)
      .map((line) => line.split(",").slice(0, 4).join(",")),
    ["team,user,requests,ok", "'=sales,ada,2,2"],
  );
  const { total } = JSON.parse(await run("usage", "-o", "json")) as { total: { requests: number } };
  assert.equal(total.requests, 3);
  assert.match(await run("requests", "--before", "2100-01-01"), /first[\s\S]*second[\s\S]*third/);
  assert.match(await run("history", "status"), /sqlite, up[\s\S]*3 rows[\s\S]*3 written, 0 spooled, 0 dropped/);
  assert.equal(await run("history", "delete", "--subject", "ada"), "deleted 2 rows of ada\n");
  assert.doesNotMatch(await run("usage", "--by", "user"), /ada/);
  assert.doesNotMatch(await run("requests", "--before", "2100-01-01"), /first/);
});
