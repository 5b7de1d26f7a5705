/**
 * A server that was trusted turns hostile: its answers repeat known members in another case, add members that nobody
 * knows, and change what the lock file leaves to other readers. Two readers stand for all clients: one that compares keys
 * exactly, and one that ignores case and takes the last (Go's encoding/json). FUZZ_COUNT=2000 tries more answers.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import type { TestGateway } from "../support/gateway.ts";
import { gwctl } from "../support/gwctl.ts";
import { type Json, rawClient } from "../support/mcp/client.ts";
import { modernPost } from "../support/mcp/modern-client.ts";
import { gatewayFor } from "../support/scenario.ts";

const COUNT = Number(process.env.FUZZ_COUNT ?? 20);
/** Nothing with this text was accepted. */
const EVIL = "EVIL-TEXT";
/** Nobody may use anything with this name. */
const DENIED = "denied-name";

const GOOD = {
  name: "good",
  title: "Good",
  description: "Does good",
  inputSchema: { type: "object", properties: { q: { type: "string" } } },
  annotations: { readOnlyHint: true },
  icons: [{ src: "https://example.com/a.png" }],
  _meta: { "ui/resourceUri": "ui://good" },
};
const INSTRUCTIONS = "Use good for everything.";

interface Lists {
  readonly member: string;
  readonly good: Readonly<Record<string, unknown>>;
  readonly key: string;
}
const LISTS: Readonly<Record<string, Lists>> = {
  "tools/list": { member: "tools", good: GOOD, key: "name" },
  "prompts/list": { member: "prompts", good: { name: "good", description: "p" }, key: "name" },
  "resources/list": { member: "resources", good: { uri: "test://good", name: "r" }, key: "uri" },
  "resources/templates/list": {
    member: "resourceTemplates",
    good: { uriTemplate: "test://good/{x}", name: "t" },
    key: "uriTemplate",
  },
};

/** What the server answers next, by method: the members of the message behind its id, as text. */
interface HostileServer {
  readonly url: string;
  answers: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

const about = (instructions: object = {}): object => ({
  capabilities: { tools: {}, prompts: {}, resources: {} },
  serverInfo: { name: "h", version: "1" },
  ...instructions,
});
const MODERN_RESULT = { resultType: "complete", ttlMs: 0, cacheScope: "private" };

async function startHostile(t: TestContext): Promise<HostileServer> {
  const server = createServer({ keepAliveTimeout: 0 }, (req, res) => {
    let body = "";
    req.on("data", (chunk) => {
      body += String(chunk);
    });
    req.on("end", () => {
      const { id, method = "", params } = body === "" ? ({} as Json) : JSON.parse(body);
      if (id === undefined) return void res.writeHead(body === "" ? 405 : 202).end();
      const list = LISTS[method];
      const good =
        method === "initialize"
          ? { protocolVersion: params.protocolVersion, ...about({ instructions: INSTRUCTIONS }) }
          : method === "server/discover"
            ? { supportedVersions: ["2026-07-28"], ...about({ instructions: INSTRUCTIONS }), ...MODERN_RESULT }
            : list
              ? { [list.member]: [list.good], ...MODERN_RESULT }
              : { content: [], ...MODERN_RESULT };
      res.writeHead(200, { "content-type": "application/json" });
      const said = hostile.answers[method] ?? `"result":${JSON.stringify(good)}`;
      res.end(`{"jsonrpc":"2.0","id":${JSON.stringify(id)},${said}}`);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const hostile: HostileServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    answers: {},
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  t.after(() => hostile.close());
  return hostile;
}

const ALLOW_GOOD = {
  rules: [
    'mcp.tool.name == "good"',
    'mcp.prompt.name == "good"',
    'mcp.resource.uri == "test://good"',
    'mcp.resource.uri == "test://good/{x}"',
  ],
};
/** Route → whether it has a lock file, rules, a second server, and search. */
const ROUTES = {
  lock: { lock: true },
  rules: { rules: true },
  both: { lock: true, rules: true },
  locks: { lock: true, many: true },
  ruless: { rules: true, many: true },
  search: { lock: true, rules: true, search: true },
} as Readonly<Record<string, { lock?: boolean; rules?: boolean; many?: boolean; search?: boolean }>>;

function configFor(url: string, friend: string): string {
  return JSON.stringify({
    config: { logging: { level: "error,access=off" } },
    gateways: { default: { port: 0, address: "127.0.0.1" } },
    routes: Object.entries(ROUTES).map(([name, { lock, rules, many, search }]) => ({
      name,
      matches: [{ path: { pathPrefix: `/${name}` } }],
      ...(rules ? { policies: { mcpAuthorization: ALLOW_GOOD } } : {}),
      backends: [
        {
          mcp: {
            targets: [{ name: "h", mcp: { url } }, ...(many ? [{ name: "friend", mcp: { url: friend } }] : [])],
            ...(lock ? { toolsLock: "tools.lock" } : {}),
            ...(search ? { toolMode: "search" } : {}),
          },
        },
      ],
    })),
  });
}

function lockText(version: 1 | 2): string {
  const { icons: _icons, _meta, ...rest } = GOOD;
  const tools = version === 1 ? { good: rest } : { good: GOOD, "(instructions)": { instructions: INSTRUCTIONS } };
  return JSON.stringify({ version, targets: { h: tools, friend: tools } });
}

/** A value as a reader that ignores case sees it: of keys that differ only in case, the last one counts. */
function ignoringCase(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(ignoringCase);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [key.toUpperCase().toLowerCase(), ignoringCase(one)]),
  );
}

/** The items that the two readers find in a response: each with its known members in lower case. */
function readItems(text: string, member: string): Json[] {
  const data = text.includes("data: ") ? text.slice(text.lastIndexOf("data: ") + 6).trim() : text;
  const strict = (JSON.parse(data) as Json).result?.[member] ?? [];
  const lenient = (ignoringCase(JSON.parse(data)) as Json).result?.[member.toLowerCase()] ?? [];
  return [...strict.map(ignoringCase), ...lenient];
}

const NOT_SAME = fc.constantFrom<(key: string) => string>(
  (key) => key.toUpperCase(),
  (key) => key.slice(0, -1) + (key.at(-1) ?? "").toUpperCase(),
  (key) => key.replace(/[a-z]/, (letter) => letter.toUpperCase()),
  // Some readers take these for s and k.
  (key) => (key.includes("s") ? key.replace("s", "\u017f") : key.toUpperCase()),
  (key) => (key.includes("k") ? key.replace("k", "\u212a") : key.toUpperCase()),
);

type Place = "message" | "result" | "item" | "schema";
interface Addition {
  readonly place: Place;
  readonly key: string;
  readonly isFirst: boolean;
  readonly isEscaped: boolean;
}

const KEYS: Readonly<Record<Place, readonly string[]>> = {
  message: ["result", "error", "id", "method", "params", "jsonrpc"],
  result: ["$member", "nextCursor", "_meta", "resultType"],
  item: ["$key", "name", "title", "description", "inputSchema", "annotations", "icons", "_meta", "uri"],
  schema: ["properties", "description", "type"],
};

const additions: fc.Arbitrary<Addition> = fc.constantFrom<Place>("message", "result", "item", "schema").chain((place) =>
  fc.record({
    place: fc.constant(place),
    key: fc.oneof(
      fc
        .tuple(fc.constantFrom(...KEYS[place]), NOT_SAME)
        .map(([key, change]) => (key.startsWith("$") ? key : change(key))),
      fc.constantFrom("more", "x-tools", "_META", "$member", "$key", "tools", "meta", "input_schema"),
    ),
    isFirst: fc.boolean(),
    isEscaped: fc.boolean(),
  }),
);

interface HostileAnswer {
  readonly method: string;
  readonly additions: readonly Addition[];
  /** Exact members that say something else now: pinned by the lock file. */
  readonly changed: readonly string[];
  readonly hasDenied: boolean;
}

const hostileAnswers: fc.Arbitrary<HostileAnswer> = fc.record({
  method: fc.constantFrom(...Object.keys(LISTS)),
  additions: fc.array(additions, { minLength: 1, maxLength: 3 }),
  changed: fc.subarray(["icons", "_meta", "description", "title"], { maxLength: 2 }),
  hasDenied: fc.boolean(),
});

/** An object with members added in front or behind; keys may be written with escapes. */
function withAdditions(
  object: object,
  all: readonly Addition[],
  place: Place,
  value: (key: string) => unknown,
  list: Lists,
): string {
  const own = Object.entries(object).map(([key, one]) => [
    JSON.stringify(key),
    typeof one === "string" && one.startsWith("\0") ? one.slice(1) : JSON.stringify(one),
  ]);
  const taken = new Set(Object.keys(object));
  for (const { place: at, key, isFirst, isEscaped } of all) {
    if (at !== place) continue;
    const name = key === "$member" ? list.member.toUpperCase() : key === "$key" ? list.key.toUpperCase() : key;
    if (taken.has(name)) continue;
    taken.add(name);
    const written = isEscaped
      ? `"\\u${name.charCodeAt(0).toString(16).padStart(4, "0")}${name.slice(1)}"`
      : JSON.stringify(name);
    const pair = [written, JSON.stringify(value(name))];
    if (isFirst) own.unshift(pair);
    else own.push(pair);
  }
  return `{${own.map((pair) => pair.join(":")).join(",")}}`;
}

function hostileText(list: Lists, { additions: all, changed, hasDenied }: Omit<HostileAnswer, "method">): string {
  const evil = { ...list.good, description: EVIL };
  const denied = { ...list.good, [list.key]: DENIED, description: EVIL };
  const good: Record<string, unknown> = { ...list.good };
  for (const key of changed) good[key] = key === "icons" ? [{ src: EVIL }] : key === "_meta" ? { [EVIL]: EVIL } : EVIL;
  if ("inputSchema" in good)
    good.inputSchema = `\0${withAdditions(good.inputSchema as object, all, "schema", () => ({ description: EVIL }), list)}`;
  // What stands in an item's own unknown members belongs to that item; a name in it would be another item.
  const item = withAdditions(
    good,
    all,
    "item",
    (key) => (key.toLowerCase() === list.key.toLowerCase() ? DENIED : EVIL),
    list,
  );
  const items = hasDenied ? [item, JSON.stringify(denied)] : [item];
  const result = withAdditions(
    { [list.member]: `\0[${items.join(",")}]`, ...MODERN_RESULT },
    all,
    "result",
    () => ({ [list.member]: [evil, denied], x: [denied] }),
    list,
  );
  return withAdditions(
    { result: `\0${result}` },
    all,
    "message",
    () => ({ [list.member]: [evil, denied] }),
    list,
  ).slice(1, -1);
}

async function setUp(t: TestContext, lock: string): Promise<{ server: HostileServer; gateway: TestGateway }> {
  const server = await startHostile(t);
  const friend = await startHostile(t);
  const gateway = await gatewayFor(t, configFor(server.url, friend.url), { files: { "tools.lock": lock } });
  return { server, gateway };
}

test("no reader finds in a list what was withheld, changed or never accepted, whatever a server adds [T34]", async (t) => {
  const { server, gateway } = await setUp(t, lockText(2));
  const clients = new Map<string, ReturnType<typeof rawClient>>();
  for (const name of Object.keys(ROUTES)) {
    const client = rawClient(`${gateway.url()}/${name}`);
    assert.equal((await client.initialize()).message.result.instructions?.includes(INSTRUCTIONS), true, name);
    clients.set(name, client);
  }
  let shown = 0;
  let asked = 0;
  const check = async (method: string, isHostile: boolean): Promise<void> => {
    const { member, good, key } = LISTS[method] as Lists;
    for (const [name, client] of clients) {
      const { lock, rules, many, search } = ROUTES[name] ?? {};
      const query = { name: "find_tools", arguments: { query: "good" } };
      const [asks, params] = search && method === "tools/list" ? ["tools/call", query] : [method, {}];
      const texts = [
        (await client.post({ jsonrpc: "2.0", id: 1, method: asks, params })).text,
        (await modernPost(client.url, asks as string, params as Record<string, unknown>)).text,
      ];
      for (const text of texts) {
        const where = `${name} ${method}: ${text}`;
        asked += 1;
        if (rules) assert.ok(!text.includes(DENIED), where);
        if (lock && method === "tools/list") assert.ok(!text.includes(EVIL) && !text.includes(DENIED), where);
        if (asks !== method) continue;
        const items = readItems(text, member);
        shown += items.length;
        for (const item of items) {
          const own = String(item[key.toLowerCase()]);
          if (rules) assert.ok(own.includes("good"), where);
          if (lock && method === "tools/list" && !many) assert.deepEqual(item, ignoringCase(good), where);
        }
        if (!isHostile) assert.equal(items.length, many ? 4 : 2, where);
      }
    }
  };
  for (const method of Object.keys(LISTS)) await check(method, false);
  assert.ok(shown > 0);
  await fc.assert(
    fc.asyncProperty(hostileAnswers, async ({ method, ...answer }) => {
      server.answers = { [method]: hostileText(LISTS[method] as Lists, answer) };
      await check(method, true);
    }),
    { numRuns: COUNT },
  );
  assert.ok(asked >= COUNT * 12, `${asked} responses`);
  // A server that is honest again is served again.
  server.answers = {};
  for (const method of Object.keys(LISTS)) await check(method, false);
});

const OTHER_INSTRUCTIONS: readonly [what: string, members: object][] = [
  ["changed instructions", { instructions: EVIL }],
  ["instructions in another case", { instructions: INSTRUCTIONS, Instructions: EVIL }],
  ["instructions in another case alone", { INSTRUCTIONS: EVIL }],
  ["instructions with a long s", { instructions: INSTRUCTIONS, "in\u017ftructions": EVIL }],
  ["an unknown member", { instructions: INSTRUCTIONS, hints: EVIL }],
  ["a member of _meta", { instructions: INSTRUCTIONS, _meta: { hints: EVIL } }],
  ["instructions that are no string", { instructions: [EVIL] }],
];

test("instructions of a server reach clients only as they were accepted [T35]", async (t) => {
  const { server, gateway } = await setUp(t, lockText(2));
  for (const [i, [what, members]] of OTHER_INSTRUCTIONS.entries()) {
    server.answers = {
      initialize: `"result":${JSON.stringify({ protocolVersion: "2025-11-25", ...about(members) })}`,
      "server/discover": `"result":${JSON.stringify({ supportedVersions: ["2026-07-28"], ...about(members), ...MODERN_RESULT })}`,
    };
    for (const [name, { lock, many }] of Object.entries(ROUTES)) {
      if (!lock) continue;
      const url = `${gateway.url()}/${name}`;
      // Clients with other capabilities get a connection of their own, so the server is asked again.
      const options = { capabilities: { experimental: { [`case-${i}`]: {} } } };
      const texts = [
        (await rawClient(url).initialize()).text,
        (await modernPost(url, "server/discover", {}, options)).text,
      ];
      for (const text of texts) {
        assert.ok(!text.includes(EVIL), `${what} on ${name}: ${text}`);
        if (many) assert.ok(text.includes(INSTRUCTIONS), `${what} on ${name}: the other server is honest: ${text}`);
      }
    }
  }
});

test("a lock file of version 1 pins what it did; `gwctl mcp lock` shows and writes what version 2 adds", async (t) => {
  const { server, gateway } = await setUp(t, lockText(1));
  const client = rawClient(`${gateway.url()}/lock`);
  server.answers = {
    "tools/list": `"result":${JSON.stringify({ tools: [{ ...GOOD, _meta: { other: 1 } }] })}`,
  };
  assert.equal((await client.initialize()).message.result.instructions, INSTRUCTIONS);
  assert.equal((await client.request("tools/list")).result.tools.length, 1);
  const lockFile = `${gateway.folder}/tools.lock`;
  const lock = (...args: string[]) =>
    gwctl([
      "mcp",
      "lock",
      "--backend",
      "lock/backend0",
      "--lock-file",
      lockFile,
      "-p",
      new URL(gateway.adminUrl).port,
      ...args,
    ]);
  const check = await lock("--check");
  assert.equal(check.code, 1, check.stderr);
  assert.match(check.stdout, /^h\/\(instructions\): new$/m);
  assert.match(check.stdout, /^h\/good: changed$/m);
  assert.match(check.stdout, /\+ "_meta": \{/);
  const written = await lock();
  assert.equal(written.code, 0, written.stderr);
  assert.equal((await lock("--check")).code, 0);
});

const OTHER_ENVELOPES = ["Result", "RESULT", "re\u017fult", "Error", "ID", "Id", "Method", "Params", "JsonRPC"];

test("an answer with a member of JSON-RPC in another case fails the call that it answers [T36]", async (t) => {
  const { server, gateway } = await setUp(t, lockText(2));
  const client = rawClient(`${gateway.url()}/ruless`);
  await client.initialize();
  for (const key of OTHER_ENVELOPES) {
    server.answers = {
      "tools/call": `"result":{"content":[]},${JSON.stringify(key)}:{"content":[{"type":"text","text":"${EVIL}"}]}`,
    };
    const { error, ...rest } = await client.call("h_good");
    assert.match(error.message, /can be read in two ways: the key ".*" must be written "/, JSON.stringify(rest));
    assert.ok(!JSON.stringify([error, rest]).includes(EVIL));
  }
  server.answers = {};
  assert.deepEqual((await client.call("h_good")).result.content, []);
});
