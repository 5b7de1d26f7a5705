import assert from "node:assert/strict";
import { test } from "node:test";
import { fakeClock } from "../../test/support/fake-clock.ts";
import type { ConfigGeneration } from "../config/compile/resource-registry.ts";
import type { Prepared, PreparedConfig, ProcessSettings } from "../config/prepare.ts";
import type { Topology } from "../core/topology.ts";
import { silentLogger } from "../record/log/logger.ts";
import { createMetrics } from "../record/log/metrics.ts";
import { createRedaction } from "../record/trace/redact.ts";
import { createReloads } from "./reload.ts";

const redaction = createRedaction([]);

function settingsOf(drainTimeout: number): ProcessSettings {
  const places = { adminAddr: "", statsAddr: "", store: "", history: "" };
  return { process: { drainTimeout } as ProcessSettings["process"], places, folder: "/", redaction };
}

function config(changes: Partial<PreparedConfig> = {}): PreparedConfig {
  return {
    ok: true,
    topology: { listeners: [] },
    settings: settingsOf(1_000),
    resources: [],
    services: {},
    warnings: [],
    findings: [],
    security: [],
    tests: [],
    sources: [],
    ...changes,
  };
}

interface Setup {
  readonly first?: PreparedConfig;
  load?(): Prepared;
  apply?(topology: Topology): Promise<void>;
  isShuttingDown?(): boolean;
}

function setUp({ first = config(), load, apply, isShuttingDown }: Setup) {
  const lines: string[] = [];
  const ends: string[] = [];
  const metrics = createMetrics();
  const write = (level: string) => (message: string, fields?: object) =>
    void lines.push(`${level} ${message}${fields === undefined ? "" : ` ${JSON.stringify(fields)}`}`);
  const generation: ConfigGeneration = {
    acquire: (_key, _definition, open) => open(),
    serving: () => undefined,
    commit: () => void ends.push("commit"),
    discard: () => void ends.push("discard"),
  };
  const reloads = createReloads(
    {
      clock: fakeClock(),
      logger: { ...silentLogger, error: write("error"), warn: write("warn"), info: write("info") },
      metrics,
      sources: ["config.yaml"],
      begin: () => generation,
      *load() {
        yield;
        return load?.() ?? config();
      },
      apply: apply ?? (() => Promise.resolve()),
      isShuttingDown: isShuttingDown ?? (() => false),
    },
    first,
  );
  return { reloads, lines, ends, first, metrics };
}

test("a good configuration takes the place of the running one", async () => {
  const next = config({ warnings: ["look here"] });
  const { reloads, lines, ends, first } = setUp({ load: () => next });
  assert.equal(reloads.running(), first);
  await reloads.reload();
  assert.equal(reloads.running().topology, next.topology);
  assert.deepEqual(ends, ["commit"]);
  assert.equal(reloads.state().generation, 2);
  assert.deepEqual(reloads.state().warnings, ["look here"]);
  assert.deepEqual(lines, ["warn look here", 'info configuration loaded {"generation":2,"changed":"nothing"}']);
});

test("the new configuration is what the listeners serve before it counts as running", async () => {
  const next = config();
  const { reloads, first } = setUp({
    load: () => next,
    async apply(topology) {
      assert.equal(topology, next.topology);
      assert.equal(reloads.running(), first);
    },
  });
  await reloads.reload();
  assert.equal(reloads.running().topology, next.topology);
});

const refusals: [name: string, setup: Setup, problems: string[]][] = [
  ["has problems", { load: () => ({ ok: false, problems: ["one", "two"] }) }, ["one", "two"]],
  [
    "cannot be read",
    {
      load() {
        throw new Error("no such file");
      },
    },
    ["no such file"],
  ],
  ["cannot be bound", { apply: () => Promise.reject(new Error("port in use")) }, ["port in use"]],
];
for (const [name, setup, problems] of refusals) {
  test(`a configuration that ${name} is refused; everything stays as it was`, async () => {
    const { reloads, lines, ends, first, metrics } = setUp(setup);
    await reloads.reload();
    assert.equal(reloads.running(), first);
    assert.deepEqual(ends, ["discard"]);
    assert.equal(reloads.state().generation, 1);
    assert.deepEqual(reloads.state().refused?.problems, problems);
    assert.deepEqual(lines, [
      ...problems.map((problem) => `error ${problem}`),
      `error configuration rejected; the previous one stays active {"problems":${problems.length}}`,
    ]);
    assert.match(metrics.render(), /gateway_config_reloads_total\{result="refused"\} 1\n/);
  });
}

test("after a refusal, the next good configuration is compared with the one that runs", async () => {
  const first = config({ security: ["route a: jwtAuth"] });
  const outcomes: Prepared[] = [{ ok: false, problems: ["wrong"] }, config()];
  const { reloads, lines } = setUp({ first, load: () => outcomes.shift() as Prepared });
  await reloads.reload();
  await reloads.reload();
  assert.equal(reloads.state().refused, undefined);
  assert.ok(lines.includes('warn reload removed a security policy {"policy":"route a: jwtAuth"}'));
});

test("what stands under `config:` stays that of the start, and the change waits for a restart", async () => {
  const changed = config({ settings: settingsOf(5_000) });
  const { reloads, lines, first } = setUp({ load: () => changed });
  await reloads.reload();
  assert.equal(reloads.running().settings, first.settings);
  assert.deepEqual(reloads.state().needsRestart, ["config"]);
  assert.equal(lines[0], "warn `config:` changed: restart the gateway to apply it");
});

test("a process that ends takes no new configuration", async () => {
  const { reloads, ends, lines } = setUp({ isShuttingDown: () => true });
  await reloads.reload();
  assert.deepEqual([ends, lines], [[], []]);
});

test("sources that can be read again end the refusal", () => {
  const { reloads } = setUp({});
  reloads.refuse(["unreadable"]);
  assert.deepEqual(reloads.state().refused?.problems, ["unreadable"]);
  reloads.restored();
  assert.equal(reloads.state().refused, undefined);
});

test("a configuration that was prepared while the gateway shut down is not applied", async () => {
  let isShuttingDown = false;
  const applied: Topology[] = [];
  const { reloads, ends, first } = setUp({
    isShuttingDown: () => isShuttingDown,
    apply: async (topology) => void applied.push(topology),
    load() {
      isShuttingDown = true;
      return config();
    },
  });
  await reloads.reload();
  assert.equal(reloads.running(), first);
  assert.deepEqual([applied, ends], [[], ["discard"]]);
});
