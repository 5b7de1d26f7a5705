/**
 * `gwctl record` and `gwctl replay`: what is recorded has no secrets in it, and a replay tells what differs.
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { systemClock } from "../../src/base/clock.ts";
import { runGwctl } from "../../src/cli/gwctl.ts";
import { eventually } from "../support/eventually.ts";
import type { TestGateway } from "../support/gateway.ts";
import { startGwctl } from "../support/gwctl.ts";
import { backendFor, gatewayFor } from "../support/scenario.ts";

const PLANTED = "planted-secret-0123456789";

async function gwctl(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const out: string[] = [];
  const err: string[] = [];
  const terminal = {
    out: (text: string) => void out.push(text),
    err: (text: string) => void err.push(text),
    isInteractive: false,
    hasColor: false,
    environment: {},
    clock: systemClock,
    readStdin: () => "",
  };
  return { code: await runGwctl(args, terminal), out: out.join(""), err: err.join("") };
}

function adminPort(gateway: TestGateway): string {
  return new URL(gateway.adminUrl).port;
}

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "replay-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

function configOf(host: string, rule: string): string {
  return `config: { sensitiveHeaders: [x-own-secret] }
gateways: { default: { port: 0, address: 127.0.0.1 } }
routes:
  - name: keyed
    matches: [{ path: { pathPrefix: /keyed } }]
    backends: [{ host: "${host}" }]
    policies:
      apiKey: { keys: [{ key: ${PLANTED}-key, metadata: { user_id: alice } }], location: { header: { name: x-place } } }
      authorization: { rules: ['${rule}'] }
  - { name: open, backends: [{ host: "${host}" }] }
`;
}

test("a recording has no secrets in it, and a replay finds nothing that differs", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, configOf(backend.host, "true"));
  const file = join(folderFor(t), "traffic.jsonl");
  const recording = gwctl("record", "-o", file, "--count", "12", "-p", adminPort(gateway));
  const secrets = {
    authorization: `Bearer ${PLANTED}-1`,
    cookie: `sid=${PLANTED}-2`,
    "x-own-secret": `${PLANTED}-3`,
    "x-copy": `${PLANTED}-1`,
    "x-kept": "yes",
  };
  let sent = 0;
  const ask = async (path: string, headers: Record<string, string> = {}, method = "GET"): Promise<void> => {
    const body = method === "POST" ? `{"secret":"${PLANTED}-4"}` : undefined;
    await (await fetch(gateway.url() + path, { method, headers, ...(body ? { body } : {}) })).arrayBuffer();
    sent += 1;
  };
  // Until the recording has begun, requests are not in it.
  await eventually("the recording has begun", async () => {
    await ask("/begin");
    return statSync(file, { throwIfNoEntry: false }) !== undefined && readFileSync(file, "utf8") !== "";
  });
  await ask(`/open?a=1&api_key=${PLANTED}-5&access_token=${PLANTED}-6`, secrets);
  await ask("/keyed", { "x-place": `${PLANTED}-key`, "x-also": `${PLANTED}-key` });
  await ask("/keyed");
  await ask("/open", secrets, "POST");
  for (; sent < 40; ) await ask("/end");
  const { code, err } = await recording;
  assert.equal(code, 0, err);
  assert.match(err, /12 requests recorded/);
  const text = readFileSync(file, "utf8");
  assert.equal(text.trim().split("\n").length, 12);
  assert.doesNotMatch(text, new RegExp(PLANTED));
  assert.match(text, /"x-kept","yes"/);
  assert.equal(statSync(file).mode & 0o077, 0);

  const again = await gwctl(
    ...["replay", file, "--to", gateway.url(), "--speed", "max", "--policies", "-p", adminPort(gateway)],
    ...["-H", `x-place: ${PLANTED}-key`],
  );
  // Without a key it was 401 then; with one it is not.
  assert.match(again.out, /status {4}replay-\S+ {2}GET \/keyed {2}401 authentication_failed {2}200/);
  assert.equal(again.code, 1);
  assert.doesNotMatch(again.out + again.err, new RegExp(PLANTED));
});

test("a replay against a changed gateway tells statuses, routes and policies", async (t) => {
  const backend = await backendFor(t);
  const old = await gatewayFor(t, configOf(backend.host, "true"));
  const changed = await gatewayFor(t, configOf(backend.host, 'request.path != "/keyed/b"'));
  const headers = { "x-place": `${PLANTED}-key` };
  for (const path of ["/keyed/a", "/keyed/b", "/open"])
    await (await fetch(old.url() + path, { headers })).arrayBuffer();
  const file = join(folderFor(t), "traffic.jsonl");
  assert.equal((await gwctl("record", "-o", file, "--last", "-p", adminPort(old))).code, 0);

  const replay = (...more: string[]) =>
    gwctl("replay", file, "--speed", "max", "--policies", "-H", `x-place: ${PLANTED}-key`, ...more);
  const same = await replay("--to", old.url(), "-p", adminPort(old));
  assert.deepEqual([same.code, same.out], [0, "3 requests sent, 3 matched the recording\n"], same.err);
  const other = await replay("--to", changed.url(), "-p", adminPort(changed), "-o", "json");
  assert.equal(other.code, 1);
  const { sent, differing, differences } = JSON.parse(other.out) as {
    sent: number;
    differing: number;
    differences: { what: string; recorded: string; replayed: string }[];
  };
  assert.deepEqual([sent, differing], [3, 1]);
  assert.deepEqual(differences.map(({ what, recorded, replayed }) => `${what}: ${recorded} → ${replayed}`).sort(), [
    "policies: apiKey, authorization → apiKey, authorization=refused",
    "status: 200 → 403 authorization_denied",
  ]);
});

test("a replay keeps the pace of its recording, as a process of its own", async (t) => {
  const backend = await backendFor(t);
  const gateway = await gatewayFor(t, configOf(backend.host, "true"));
  await (await fetch(`${gateway.url()}/open`)).arrayBuffer();
  const file = join(folderFor(t), "traffic.jsonl");
  assert.equal((await gwctl("record", "-o", file, "--last", "-p", adminPort(gateway))).code, 0);
  const line = JSON.parse(readFileSync(file, "utf8")) as { at: number };
  writeFileSync(file, [0, 150, 300].map((ms) => `${JSON.stringify({ ...line, at: line.at + ms })}\n`).join(""));
  // Nothing but a timer keeps it between two requests.
  const { code, stdout, stderr } = await startGwctl(["replay", file, "--to", gateway.url()]).result;
  assert.deepEqual([code, stdout], [0, "3 requests sent, 3 matched the recording\n"], stderr);
});

test("bad input is a clear error", async (t) => {
  const file = join(folderFor(t), "bad.jsonl");
  writeFileSync(file, '{"at": 1}\n');
  for (const [args, said] of [
    [["replay", file, "--to", "http://127.0.0.1:1"], /bad\.jsonl:1: no recorded request/],
    [["replay", file, "--to", "ftp://x"], /--to must begin with http/],
    [["replay", `${file}.none`, "--to", "http://127.0.0.1:1"], /cannot read/],
    [["record", "-o", file, "--sample", "2"], /invalid --sample/],
    [["replay", file, "--to", "http://127.0.0.1:1", "--speed", "0"], /invalid --speed/],
  ] as const) {
    const { code, err } = await gwctl(...args);
    assert.notEqual(code, 0);
    assert.match(err, said);
  }
});
