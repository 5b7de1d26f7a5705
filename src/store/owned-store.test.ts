/**
 * Two hostile tenants, who choose equal names and any text for keys, against every kind of entry and every signature.
 * New kinds are covered, because they are enumerated.
 */
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import fc from "fast-check";
import { systemClock } from "../base/clock.ts";
import { Owner } from "../base/owner.ts";
import { silentLogger } from "../record/log/logger.ts";
import { createMemoryStore } from "./memory-store.ts";
import { OWNED_ENTRIES, type OwnedEntries, ownedStore } from "./owned-store.ts";
import { type BusPeer, createProcessBus, type ProcessBus } from "./process-bus.ts";
import { createSigningKey, SIGNATURE_DOMAINS } from "./signing-key.ts";
import type { Bus, Store } from "./store.ts";

/** `TENANT_CASES=5000 npm test -- src/store` runs more. */
const RUNS = Number(process.env.TENANT_CASES ?? 60);
const ENTRIES = Object.keys(OWNED_ENTRIES) as OwnedEntries[];

const name = fc.oneof(
  fc.constantFrom("a", "b", "a/b", "@a", "~", "", ".", "..", "default", "%2f", "é", "a".repeat(300)),
  fc.string({ maxLength: 8 }),
);
const key = fc.oneof(
  fc.constantFrom("x", "a/x", "../x", "=x", "-", "monthly/tokens/month/2026-11/-"),
  fc.string({ minLength: 1, maxLength: 12 }),
);
const owner = fc.oneof(
  { weight: 1, arbitrary: fc.constant(Owner.standalone) },
  {
    weight: 5,
    arbitrary: fc
      .record({ namespace: name, kind: fc.constantFrom("HTTPRoute", "GatewayPolicy"), name }, { noNullPrototype: true })
      .chain((identity) => fc.boolean().map((isInFile) => Owner.ofDocument(identity, isInFile))),
  },
);

/** A tenant may try the other's prefix as part of its own keys. */
const attempts = (text: string, one: Owner, other: Owner): readonly string[] => [
  text,
  `${other.prefix}${text}`,
  `${other.tenant.prefix}${text}`,
  `${one.prefix}${text}`,
  `/${text}`,
];

const isSame = (entries: OwnedEntries, one: Owner, other: Owner): boolean =>
  OWNED_ENTRIES[entries] === "document" ? one.prefix === other.prefix : one.tenant.prefix === other.tenant.prefix;

async function keysOf(store: Store): Promise<string[]> {
  return (await store.list("")).entries.map((entry) => entry.key);
}

/** The standalone configuration cannot name an owner at all. */
async function refusable<Result>(work: () => Promise<Result>): Promise<Result | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

for (const entries of ENTRIES)
  test(`${entries}: an owner neither reads, changes, counts, deletes, nor lists what belongs to another`, async () => {
    await fc.assert(
      fc.asyncProperty(owner, owner, key, async (one, other, text) => {
        fc.pre(!isSame(entries, one, other));
        const root = createMemoryStore(systemClock);
        const [theirs, ours] = [ownedStore(root, other).at(entries), ownedStore(root, one).at(entries)];
        const own = other.isStandalone && text.startsWith("@") ? `x${text}` : text;
        await theirs.set(own, "secret");
        await theirs.add(`count ${own}`, 5);
        const tries = attempts(own, one, other);
        for (const tried of [...tries, ...tries.map((each) => `count ${each}`)]) {
          assert.equal(await refusable(() => ours.get(tried)), undefined);
          assert.notEqual(await refusable(() => ours.delete(tried)), true);
          assert.notEqual(await refusable(() => ours.replace(tried, "secret", "mine")), true);
        }
        for (const tried of tries) {
          await refusable(() => ours.set(tried, "mine"));
          await refusable(() => ours.add(`count ${tried}`, 1));
        }
        assert.equal(await theirs.get(own), "secret");
        assert.equal((await theirs.add(`count ${own}`, 0)).total, 5);
        const listed = await keysOf(theirs);
        assert.deepEqual(listed.sort(), [own, `count ${own}`].sort());
      }),
      { numRuns: RUNS },
    );
  });

/** The buses of two processes. */
function connectedBuses(): readonly [ProcessBus, ProcessBus] {
  const [here, there] = [createProcessBus(), createProcessBus()];
  const toThere: BusPeer = here.connect((message) => toHere.received(message));
  const toHere: BusPeer = there.connect((message) => toThere.received(message));
  return [here, there];
}

test("messages of one owner do not reach another", async () => {
  await fc.assert(
    fc.asyncProperty(owner, owner, key, async (one, other, channel) => {
      fc.pre(one.prefix !== other.prefix && !channel.startsWith("@"));
      const [here, there] = connectedBuses();
      const busOf = (bus: ProcessBus, each: Owner): Bus | undefined =>
        ownedStore({ ...createMemoryStore(systemClock), bus }, each).at("mcp-replicas").bus;
      const received: string[] = [];
      busOf(there, other)?.listen(channel, (text) => void received.push(text));
      for (const tried of attempts(channel, one, other))
        await refusable(async () => busOf(here, one)?.publish(tried, "mine"));
      assert.deepEqual(received, []);
      await busOf(here, other)?.publish(channel, "theirs");
      assert.deepEqual(received, ["theirs"]);
    }),
    { numRuns: RUNS },
  );
});

for (const domain of SIGNATURE_DOMAINS)
  test(`a signature for ${domain} is valid for its owner, purpose, and values only`, async () => {
    const signing = createSigningKey(createMemoryStore(systemClock), systemClock, silentLogger);
    await signing.open(["a key of the configuration, for all replicas"]);
    fc.assert(
      fc.property(owner, owner, fc.array(fc.base64String(), { maxLength: 3 }), (one, other, values) => {
        const signature = signing.of(one).sign(domain, ...values);
        assert.ok(signing.of(one).isSignature(signature, domain, ...values));
        if (one.prefix !== other.prefix) {
          assert.ok(!signing.of(other).isSignature(signature, domain, ...values));
          assert.ok(!signing.of(other).isSignature(signature, domain, `${one.prefix}${values[0] ?? ""}`));
        }
        for (const another of SIGNATURE_DOMAINS)
          if (another !== domain) assert.ok(!signing.of(one).isSignature(signature, another, ...values));
        assert.ok(!signing.of(one).isSignature(signature, domain, ...values, "more"));
      }),
      { numRuns: RUNS },
    );
  });

/** As the versions before owners signed and stored them. Replicas of both versions run side by side. */
test("keys and signatures of the standalone configuration are those of earlier versions", async () => {
  const root = createMemoryStore(systemClock);
  for (const entries of ENTRIES) await ownedStore(root, Owner.standalone).at(entries).set("a/b", entries);
  for (const entries of ENTRIES) assert.equal(await root.get(`${entries}/a/b`), entries);
  const signing = createSigningKey(root, systemClock, silentLogger);
  await signing.open(["a key of the configuration, for all replicas"]);
  const secret = createHmac("sha256", "gateway session key")
    .update("a key of the configuration, for all replicas")
    .digest();
  const before = (text: string): string =>
    createHmac("sha256", secret).update(text).digest().subarray(0, 16).toString("base64url");
  const own = signing.of(Owner.standalone);
  assert.equal(own.sign("sign-in", "a13d27c7", "payload"), before("sign-in a13d27c7 payload"));
  assert.equal(own.sign("login callback", "i", "r", "p"), before('["login callback","i","r","p"]'));
  assert.equal(own.sign("mcp session", "backend", null, "t"), before('["mcp session","backend",null,"t"]'));
  for (const domain of ["mcp answers", "mcp replicas", "mcp settings", "mcp tasks"] as const)
    assert.equal(own.sign(domain), before(domain));
});

test("owners differ exactly if their namespaces or names do", () => {
  const identities = ["a", "b", "a-b", "A", "a.b", "", "~", "@a", "a/b"].flatMap((namespace) =>
    ["GatewayPolicy", "HTTPRoute"].flatMap((kind) =>
      ["a", "b", "a/b"].map((each) => ({ namespace, kind, name: each })),
    ),
  );
  const owners = identities.map((identity) => Owner.ofDocument(identity));
  assert.equal(new Set(owners.map(({ prefix }) => prefix)).size, identities.length);
  assert.equal(new Set(owners.map(({ tenant }) => tenant.prefix)).size, 9);
  for (const { prefix } of owners) assert.match(prefix, /^@[a-z0-9~-]{1,63}\/[0-9a-f]{32}\/$/);
});
