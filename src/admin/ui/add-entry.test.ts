import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { callAdmin } from "../../../test/support/admin.ts";
import { createRedaction } from "../../observe/trace/redact.ts";
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
  for (const empty of ["", "# only a comment", "config: {}\n"])
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

test("rejects duplicate names, files that cannot be edited this way, values with line breaks, unknown files", async () => {
  const taken = withEntry("mcp: { targets: [{ name: search, mcp: { url: 'http://x/' } }] }", remote);
  assert.ok("problem" in taken && /already/.test(taken.problem));
  for (const text of ["a: [", "---\na: 1\n---\nb: 2\n", "- a\n", "mcp: { port: 1 }\n"])
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
    { ...remote, more: 1 },
  ])
    assert.equal(await ask("a.yaml", entry), 400, JSON.stringify(entry));
});
