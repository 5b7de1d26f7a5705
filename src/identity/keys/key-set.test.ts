import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fakeClock } from "../../../test/support/fake-clock.ts";
import { createFakeFetch } from "../../../test/support/identity/fake-fetch.ts";
import {
  createSigningKey,
  keySetOf,
  type SigningKey,
  START_MS,
  signToken,
} from "../../../test/support/identity/tokens.ts";
import { silentLogger } from "../../record/log/logger.ts";
import type { ParsedToken } from "../tokens/token.ts";
import { createKeyTable, keysFor, openFileKeySet } from "./key-set.ts";
import { openRemoteKeySet } from "./remote-key-set.ts";
import { createTokenVerifier, type Verdict } from "./token-verifier.ts";
import type { VerificationKey } from "./verification-key.ts";

const URL = "http://localhost:8080/realms/mcp/protocol/openid-connect/certs";
const RULES = { issuer: "http://localhost:8080/realms/mcp", audiences: ["gateway"] };
const first = createSigningKey("ES256", "first");
const second = createSigningKey("ES256", "second");

function tokenOf(key: SigningKey, kid = key.kid, expiresInSeconds = 90_000): string {
  const exp = START_MS / 1000 + expiresInSeconds;
  return signToken({ key, header: { kid }, claims: { iss: RULES.issuer, aud: "gateway", exp } });
}

function open(keys = keySetOf(first)) {
  const clock = fakeClock();
  const provider = createFakeFetch({ [URL]: { body: keys } });
  const env = { fetch: provider.fetch, clock, logger: silentLogger };
  const keySet = openRemoteKeySet({ description: URL, locate: async () => URL, ...env });
  const verifier = createTokenVerifier(keySet, clock);
  const verify = async (token: string): Promise<Verdict> => await verifier.verify(token, RULES);
  return { clock, provider, keySet, verifier, verify };
}

test("nothing is fetched before the event loop runs, so validation makes no requests", () => {
  const { provider, keySet } = open();
  keySet.close();
  assert.equal(provider.requests.length, 0);
});

test("a token that arrives before the first fetch starts it and waits for it", async () => {
  const { provider, verify } = open();
  assert.equal((await verify(tokenOf(first))).kind, "valid");
  assert.equal(provider.requests.length, 1);
});

test("with keys, a token is verified synchronously", async () => {
  const { clock, verifier } = open();
  await clock.advance(0);
  const verdict = verifier.verify(tokenOf(first), RULES);
  assert.ok(!(verdict instanceof Promise) && verdict.kind === "valid");
});

test("10,000 unknown kids within 10 s cause one fetch, and one more after 30 s [K2] [V17]", async () => {
  const { clock, provider, verify } = open();
  await clock.advance(0);
  const before = provider.requests.length;
  for (let i = 0; i < 100; i++) {
    const flood = Array.from({ length: 100 }, (_, n) => verify(tokenOf(first, `random-${i}-${n}`)));
    for (const verdict of await Promise.all(flood)) assert.equal(verdict.kind, "invalid");
    await clock.advance(100);
  }
  assert.equal(provider.requests.length - before, 1);
  await clock.advance(20_001);
  await verify(tokenOf(first, "late"));
  assert.equal(provider.requests.length - before, 2);
});

test("the limit on unknown kids counts attempts, so it holds while the provider is down [K2] [V17]", async () => {
  const { clock, provider, verify } = open();
  await clock.advance(60_000);
  provider.down = true;
  const before = provider.requests.length;
  await verify(tokenOf(first, "unknown"));
  assert.equal(provider.requests.length - before, 1);
  for (let i = 0; i < 50; i++) await verify(tokenOf(first, `unknown-${i}`));
  assert.equal(provider.requests.length - before, 1);
});

test("after a rotation the new key is accepted with one fetch and the old one is rejected [R21]", async () => {
  const { clock, provider, verify } = open();
  await clock.advance(0);
  assert.equal((await verify(tokenOf(first))).kind, "valid");
  provider.answers.set(URL, { body: keySetOf(second) });
  const verdicts = await Promise.all(Array.from({ length: 200 }, () => verify(tokenOf(second))));
  assert.ok(verdicts.every((verdict) => verdict.kind === "valid"));
  assert.equal(provider.requests.length, 2);
  assert.equal((await verify(tokenOf(first))).kind, "invalid", "a cached verdict does not outlive its key");
});

test("valid tokens pass while the provider is down for an hour, and no longer after a day [R19]", async () => {
  const { clock, provider, verify } = open();
  await clock.advance(0);
  provider.down = true;
  await clock.advance(3_600_000);
  assert.equal((await verify(tokenOf(first))).kind, "valid");
  await clock.advance(23.5 * 3_600_000);
  assert.equal((await verify(tokenOf(first))).kind, "unavailable");
  provider.down = false;
  await clock.advance(31_000);
  assert.equal((await verify(tokenOf(first))).kind, "valid");
});

test("without keys a token waits at most 5 s for the fetch, then gets a retry-after [R20]", async () => {
  const { clock, provider, verify } = open();
  provider.answers.set(URL, () => new Promise(() => undefined));
  await clock.advance(0);
  const waiting = verify(tokenOf(first));
  await clock.advance(5_000);
  const verdict = await waiting;
  assert.equal(verdict.kind, "unavailable");
  assert.ok(verdict.kind === "unavailable" && verdict.retryAfterSeconds >= 1);
});

test("while the provider is slow, known keys verify at once and a hundred unknown ones share one fetch [R20]", async () => {
  const { clock, provider, verifier } = open();
  await clock.advance(0);
  const before = provider.requests.length;
  provider.answers.set(URL, () => new Promise(() => undefined));
  const waiting = Array.from({ length: 100 }, (_, i) => verifier.verify(tokenOf(first, `unknown-${i}`), RULES));
  assert.ok(waiting.every((verdict) => verdict instanceof Promise));
  const known = verifier.verify(tokenOf(first), RULES);
  assert.ok(!(known instanceof Promise) && known.kind === "valid");
  await clock.advance(5_000);
  for (const verdict of await Promise.all(waiting)) assert.equal(verdict.kind, "invalid");
  assert.equal(provider.requests.length - before, 1);
});

test("a provider that starts later is found without a token [R18]", async () => {
  const { clock, provider, verifier } = open();
  provider.down = true;
  await clock.advance(20_000);
  const attempts = provider.requests.length;
  assert.ok(attempts >= 4 && attempts <= 6, `${attempts} attempts at 0, 1, 3, 7, 15 s`);
  assert.equal(((await verifier.verify(tokenOf(first), RULES)) as Verdict).kind, "unavailable");
  assert.equal(provider.requests.length, attempts, "a token does not multiply the attempts");
  provider.down = false;
  await clock.advance(16_000);
  assert.equal(((await verifier.verify(tokenOf(first), RULES)) as Verdict).kind, "valid");
});

const wrongAnswers = {
  "a redirect": { status: 302, headers: { location: "http://127.0.0.1:1/" } },
  "an error": { status: 500, body: "oops" },
  HTML: { body: "<html>" },
  "no keys": { body: { keys: [] } },
  "only keys that cannot verify": { body: { keys: [{ kty: "oct", k: "AA", kid: "first" }] } },
  "a hundred useless keys before the good one": { body: { keys: [...Array(100).fill({}), ...keySetOf(first).keys] } },
};
for (const [name, answer] of Object.entries(wrongAnswers)) {
  test(`the old keys stay when the provider responds with ${name} [K1]`, async () => {
    const { clock, provider, verify } = open();
    await clock.advance(0);
    provider.answers.set(URL, answer);
    await clock.advance(11 * 60_000);
    assert.ok(provider.requests.length > 1);
    assert.equal((await verify(tokenOf(first))).kind, "valid");
  });
}

const lifetimes = [
  { name: "ten minutes without cache headers", headers: {}, quietMs: 599_000, dueMs: 600_001 },
  { name: "what max-age says", headers: { "cache-control": "public, max-age=300" }, quietMs: 299_000, dueMs: 300_001 },
  {
    name: "a minute when max-age is shorter",
    headers: { "cache-control": "max-age=1" },
    quietMs: 59_000,
    dueMs: 60_001,
  },
  {
    name: "ten minutes with no-store",
    headers: { "cache-control": "no-store, max-age=0" },
    quietMs: 599_000,
    dueMs: 600_001,
  },
  {
    name: "what expires says",
    headers: { expires: new Date(START_MS + 120_000).toUTCString() },
    quietMs: 119_000,
    dueMs: 120_001,
  },
];
for (const { name, headers, quietMs, dueMs } of lifetimes) {
  test(`keys are fetched again after ${name}`, async () => {
    const { clock, provider } = open();
    provider.answers.set(URL, { body: keySetOf(first), headers });
    await clock.advance(quietMs);
    assert.equal(provider.requests.length, 1);
    await clock.advance(dueMs - quietMs);
    assert.equal(provider.requests.length, 2);
  });
}

test("a response is limited to a megabyte and five seconds [K1]", async () => {
  const { clock, provider } = open();
  await clock.advance(0);
  assert.deepEqual(
    provider.requests.map(({ input, timeoutMs }) => [input.maxBytes, timeoutMs]),
    [[1024 * 1024, 5_000]],
  );
});

test("a closed key set does not fetch", async () => {
  const { clock, provider, keySet } = open();
  await clock.advance(0);
  keySet.close();
  await clock.advance(3_600_000);
  assert.equal(provider.requests.length, 1);
});

test("a replaced file is read again, and a broken one keeps the last valid keys [S2.2-12]", async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "key-set-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "jwks.json");
  writeFileSync(path, JSON.stringify(keySetOf(first)));
  const clock = fakeClock();
  const keySet = openFileKeySet(path, { clock, logger: silentLogger });
  const verifier = createTokenVerifier(keySet, clock);
  const kindOf = (key: SigningKey): string => (verifier.verify(tokenOf(key), RULES) as Verdict).kind;
  assert.equal(kindOf(first), "valid");

  writeFileSync(`${path}.new`, JSON.stringify(keySetOf(first, second)));
  renameSync(`${path}.new`, path);
  await clock.advance(1_000);
  assert.equal(kindOf(second), "valid");

  writeFileSync(path, "{ broken");
  await clock.advance(1_000);
  assert.equal(kindOf(second), "valid");
  rmSync(path);
  await clock.advance(1_000);
  assert.equal(kindOf(second), "valid");

  writeFileSync(path, JSON.stringify(keySetOf(second)));
  await clock.advance(1_000);
  assert.equal(kindOf(first), "invalid");
  keySet.close();
});

test("a file that is not regular or too large fails at once instead of hanging [K3]", (context) => {
  const folder = mkdtempSync(join(tmpdir(), "key-set-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const env = { clock: fakeClock(), logger: silentLogger };
  execFileSync("mkfifo", [join(folder, "fifo")]);
  writeFileSync(join(folder, "large"), Buffer.alloc(1024 * 1024 + 1, " "));
  assert.throws(() => openFileKeySet(join(folder, "fifo"), env), /not a regular file/);
  assert.throws(() => openFileKeySet(folder, env), /not a regular file/);
  assert.throws(() => openFileKeySet(join(folder, "large"), env), /larger than/);
  assert.throws(
    () => openFileKeySet(join(folder, "absent"), env),
    /^Error: cannot read .*absent: ENOENT \(no such file/,
  );
  assert.throws(() => openFileKeySet(join(folder, "~", "keys.json"), env), /`~` is not expanded/);
});

test("a token is verified with at most eight keys, without a key ID and with one that many keys have", () => {
  for (const kid of [undefined, "same"]) {
    const keys = Array.from({ length: 100 }, () => ({ kid, algorithms: ["RS256"] }) as unknown as VerificationKey);
    const tried = keysFor({ kid, algorithm: "RS256" } as ParsedToken, createKeyTable(keys));
    assert.ok(Array.isArray(tried) && tried.length === 8, `${kid}`);
  }
});
