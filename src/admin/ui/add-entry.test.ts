import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { callAdmin } from "../../../test/support/admin.ts";
import { createRedaction } from "../../record/trace/redact.ts";
import { addEndpoint, type Entry, withEntry } from "./add-entry.ts";

const remote: Entry = { kind: "server", name: "search", url: "https://mcp.example.com/mcp?a=b#c" };

function textOf(text: string, entry: Entry): string {
  const added = withEntry(text, entry);
  assert.ok("text" in added, JSON.stringify(added));
  return added.text;
}

test("a server is added after the last one; every other character stays", () => {
  const before = `# top
mcp:
  port: 3000 # kept
  targets:
    # about files
    - name: files
      stdio:
        cmd: npx
        args: [-y, x] # beside

# behind
llm: { models: [] }
`;
  const after = textOf(before, remote);
  const lines = `
    - name: search
      mcp: { url: "https://mcp.example.com/mcp?a=b#c" }`;
  assert.equal(after, before.replace("# beside", `# beside${lines}`));
  assert.equal(parse(after).mcp.targets[1].mcp.url, remote.url);
});

test("lists in brackets, lists of routes and files without a list get it too", () => {
  const flow = "mcp: { port: 1, targets: [{ name: a, mcp: { url: 'http://x/' } }] } # c\n";
  assert.deepEqual(
    parse(textOf(flow, remote)).mcp.targets.map(({ name }: { name: string }) => name),
    ["a", "search"],
  );
  const routes = `gateways: { default: { port: 1 } }
routes:
- name: plain
  backends: [{ host: "x:1" }]
- name: tools
  backends:
  - mcp:
      targets:
      - name: a
        mcp: { url: "http://x/", headers: { k: "\${KEY}" } }
  policies: {}
`;
  const parsed = parse(textOf(routes, remote));
  assert.equal(parsed.routes[1].backends[0].mcp.targets[1].name, "search");
  assert.deepEqual(parsed.routes[1].policies, {});
  for (const empty of ["", "# only a comment", "config: {}\n", "mcp: { port: 1 }\n", "mcp: { targets: [] }\n"])
    assert.equal(parse(textOf(empty, remote)).mcp.targets[0].name, "search");
  const model = textOf("llm:\n  models:\n  - name: a\n    provider: demo\n", {
    kind: "model",
    name: "gpt-4o",
    provider: "openAI",
    keyVariable: "OPENAI_API_KEY",
  });
  assert.match(
    model,
    /\n {2}- name: gpt-4o\n {4}provider: openAI\n {4}params: \{ apiKey: "\$\{OPENAI_API_KEY\}" \}\n$/,
  );
});

test("input stays a literal value, whatever it looks like", () => {
  for (const nasty of [
    'a", x: 1 }',
    "# no",
    "{ a: b }",
    "*alias",
    "!!js/function x",
    "yes",
    "- -",
    "a: b",
    "'",
    "\\",
    "é\u202e",
  ]) {
    const text = textOf("mcp:\n  targets:\n    - name: a\n      mcp: { url: 'http://x/' }\n", {
      kind: "server",
      name: "new",
      cmd: nasty,
      args: [nasty, "--flag"],
    });
    assert.deepEqual(parse(text).mcp.targets[1], { name: "new", stdio: { cmd: nasty, args: [nasty, "--flag"] } });
    assert.equal(parse(text).mcp.targets.length, 2);
  }
  // Otherwise a placeholder would be replaced by a secret from the environment.
  const text = textOf("", { kind: "server", name: "new", cmd: "${HOME}", args: [] });
  assert.match(text, /cmd: "\$\$\{HOME\}"/);
});

test("routes, backends and policies are added where they belong; every other character stays", () => {
  const before = `gateways:
  default: { port: 1 } # kept
routes:
  - name: api # kept
    backends:
      - { host: "a:1" } # first
    # about the next route

  - { name: small, backends: [{ host: "b:1" }], policies: {} }
llm:
  port: 2
  models: [{ name: m, provider: demo }]
  policies:
    authorization:
      rules:
        - 'jwt.sub != ""' # kept
`;
  const added = (entry: Entry): string => {
    const after = textOf(before, entry);
    const lines = after.split("\n");
    for (const line of before.split("\n")) if (!/small|default:/.test(line)) assert.ok(lines.includes(line), line);
    return after;
  };
  const limit = { kind: "rateLimit", of: "requests", amount: 5, unit: "Minutes" } as const;
  assert.match(
    added({ ...limit, target: "route api", burst: 2, key: 'request.headers["x-user"]' }),
    / {6}- \{ host: "a:1" \} # first\n {4}policies:\n {6}rateLimit:\n {8}local:\n {10}- \{ requests: 5, burst: 2, unit: Minutes, key: 'request\.headers\["x-user"\]' \}\n {4}# about/,
  );
  assert.match(
    added({ ...limit, target: "route small" }),
    /policies: \{ rateLimit: \{ local: \[\{ requests: 5, unit: Minutes \}\] \} \} \}\n/,
  );
  assert.match(
    added({ ...limit, target: "listener default" }),
    /default: \{ port: 1, policies: \{ rateLimit: \{ local: \[\{ requests: 5, unit: Minutes \}\] \} \} \} # kept\n/,
  );
  const rules = parse(
    added({ kind: "authorization", target: "route llm", effect: "deny", rule: 'llm.requestModel == "m"' }),
  ).llm.policies.authorization.rules;
  assert.deepEqual(rules, ['jwt.sub != ""', { deny: 'llm.requestModel == "m"' }]);
  const stored = added({ kind: "apiKey", target: "route llm" });
  assert.deepEqual(parse(stored).llm.policies.apiKey, { stored: true });
  const keyed = textOf(stored, { kind: "apiKey", target: "route llm", keyVariable: "CI_KEY", user: "ci" });
  assert.deepEqual(parse(keyed).llm.policies.apiKey, {
    stored: true,
    keys: [{ key: "${CI_KEY}", metadata: { user_id: "ci" } }],
  });
  assert.deepEqual(parse(added({ kind: "backend", target: "route api", host: "c:1", weight: 2 })).routes[0].backends, [
    { host: "a:1" },
    { host: "c:1", weight: 2 },
  ]);
  const route = { kind: "route", name: "new", match: "pathPrefix", path: "/v2", host: "127.0.0.1:9" } as const;
  const withRoute = parse(added({ ...route, gateway: "default", hostname: "*.example.com" }));
  assert.deepEqual(withRoute.routes[2], {
    name: "new",
    gateways: "default",
    hostnames: ["*.example.com"],
    matches: [{ path: { pathPrefix: "/v2" } }],
    backends: [{ host: "127.0.0.1:9" }],
  });
  assert.deepEqual(parse(textOf("# empty", route)).gateways, { default: { port: 8080 } });

  for (const entry of [
    { kind: "apiKey", target: "route other" },
    { kind: "apiKey", target: "listener llm" },
    { kind: "backend", target: "route llm", host: "c:1" },
    { ...route, name: "api" },
  ] satisfies Entry[])
    assert.ok("problem" in withEntry(before, entry), JSON.stringify(entry));
  assert.ok("problem" in withEntry(stored, { kind: "apiKey", target: "route llm" }), "already set");
  for (const policies of ["policies:\n", "policies: { rateLimit: off }\n", "policies: { rateLimit: { local: 1 } }\n"])
    assert.ok(
      "problem" in withEntry(`routes:\n  - name: a\n    ${policies}`, { ...limit, target: "route a" }),
      policies,
    );
});

test("a model can have every provider, with the settings that it needs", () => {
  const model = (more: object): unknown =>
    parse(textOf("", { kind: "model", name: "m", ...more } as Entry)).llm.models[0];
  assert.deepEqual(model({ provider: "groq", keyVariable: "GROQ_API_KEY" }), {
    name: "m",
    provider: "groq",
    params: { apiKey: "${GROQ_API_KEY}" },
  });
  assert.deepEqual(model({ provider: "bedrock", awsRegion: "us-east-1" }), {
    name: "m",
    provider: "bedrock",
    params: { awsRegion: "us-east-1" },
  });
  assert.deepEqual(model({ provider: "openAICompatible", baseUrl: "http://localhost:8000/v1", model: "x" }), {
    name: "m",
    provider: { openAICompatible: { baseUrl: "http://localhost:8000/v1" } },
    params: { model: "x" },
  });
});

test("rejects duplicate names, files that cannot be edited this way, values with line breaks, unknown files", async () => {
  const taken = withEntry("mcp: { targets: [{ name: search, mcp: { url: 'http://x/' } }] }", remote);
  assert.ok("problem" in taken && /already/.test(taken.problem));
  for (const text of ["a: [", "---\na: 1\n---\nb: 2\n", "- a\n", "mcp:\n", "apiVersion: v1\nkind: GatewayPolicy\n"])
    assert.ok("problem" in withEntry(text, remote), text);
  const endpoint = addEndpoint({
    read: () => [{ file: "a.yaml", text: "config: {}\n" }],
    redaction: createRedaction(),
  });
  const ask = async (file: string, entry: object) => {
    const response = await callAdmin(endpoint, "", { method: "POST", body: JSON.stringify({ file, entry }) });
    return response.status;
  };
  assert.equal(await ask("a.yaml", remote), 200);
  assert.equal(await ask("/etc/passwd", remote), 404);
  for (const entry of [
    { ...remote, name: "a\nb: c" },
    { ...remote, name: "x".repeat(65) },
    { ...remote, url: "file:///etc/passwd" },
    { kind: "server", name: "a", cmd: "x\ny" },
    { kind: "server", name: "a", cmd: "x", args: ["\u0007"] },
    { kind: "model", name: "a", provider: "openAI", keyVariable: "A}B" },
    { kind: "model", name: "a", provider: "other" },
    { kind: "rateLimit", target: "route a", of: "requests", amount: 0, unit: "Minutes" },
    { kind: "rateLimit", target: "config a", of: "requests", amount: 1, unit: "Minutes" },
    { kind: "authorization", target: "route a", effect: "deny", rule: "a\nb" },
    { kind: "apiKey", target: "route a", keyVariable: "A B" },
    { kind: "route", name: "a", match: "exact", path: "x", host: "b:1" },
    { ...remote, more: 1 },
  ])
    assert.equal(await ask("a.yaml", entry), 400, JSON.stringify(entry));
});

test("nothing is added to a configuration of agentgateway, in which the entry would mean something else", () => {
  const added = withEntry("binds: [{ port: 3000, listeners: [] }]\n", remote);
  assert.match("problem" in added ? added.problem : "", /convert it with `gwctl import` first/);
});
