import assert from "node:assert/strict";
import { test } from "node:test";
import { mcpSchema } from "./target-config.ts";

const stdio = { cmd: "node" };

test("the defaults", () => {
  const config = mcpSchema.parse({ targets: [{ name: "a", stdio }] });
  assert.deepEqual(config.targets[0]?.stdio, { cmd: "node", args: [], env: {}, inheritEnv: false });
  const { targets: _, ...settings } = config;
  assert.deepEqual(settings, {
    prefixMode: "conditional",
    toolMode: "all",
    statefulMode: "stateful",
    failureMode: "failOpen",
    startWait: 30_000,
    sessionIdleTtl: 1_800_000,
    parkAfter: 60_000,
    requestTimeout: 300_000,
    maxSessions: 10_000,
    maxChildren: 256,
    maxRequestBytes: 4 * 1024 * 1024,
    maxInitializeBytes: 64 * 1024,
    maxMessageBytes: 32 * 1024 * 1024,
    allowedHosts: [],
  });
});

const guarded = (guard: object): object => ({ targets: [{ name: "a", stdio, tools: { resultGuard: [guard] } }] });
const webhook = { url: "http://guard/check" };

const refused = [
  { name: "a result guard of no kind", config: guarded({}) },
  { name: "a result guard of two kinds", config: guarded({ webhook, regex: { rules: [{ builtin: "email" }] } }) },
  { name: "a webhook in shadow mode", config: guarded({ webhook, mode: "shadow" }) },
  { name: "no targets", config: { targets: [] } },
  { name: "a target of no kind", config: { targets: [{ name: "a" }] } },
  { name: "a target of two kinds", config: { targets: [{ name: "a", stdio, mcp: { url: "http://x/mcp" } }] } },
  {
    name: "a name twice",
    config: {
      targets: [
        { name: "a", stdio },
        { name: "a", stdio },
      ],
    },
  },
  {
    name: "a name that begins another",
    config: {
      targets: [
        { name: "a", stdio },
        { name: "a_b", stdio },
      ],
    },
  },
  { name: "a name with a space", config: { targets: [{ name: "a b", stdio }] } },
  { name: "an empty command", config: { targets: [{ name: "a", stdio: { cmd: "" } }] } },
  { name: "an unknown field", config: { targets: [{ name: "a", stdio, x: 1 }] } },
  { name: "a URL of another scheme", config: { targets: [{ name: "a", mcp: { url: "file:///x" } }] } },
  { name: "a URL with a password", config: { targets: [{ name: "a", mcp: { url: "http://u:p@x/" } }] } },
  {
    name: "a header with a line break",
    config: { targets: [{ name: "a", mcp: { url: "http://x/", headers: { a: "b\r\nc" } } }] },
  },
  {
    name: "a shared target that forwards headers",
    config: { targets: [{ name: "a", shared: true, mcp: { url: "http://x/", forwardHeaders: ["a"] } }] },
  },
  ...["mcp-session-id", "Mcp-Method", "mcp-param-x", "content-length", "Content-Type", "Host", "connection", "te"]
    .concat(["transfer-encoding", "upgrade", "accept", "last-event-id", "sec-fetch-mode", "keep-alive"])
    .map((header) => ({
      name: `to forward ${header}`,
      config: { targets: [{ name: "a", mcp: { url: "http://x/", forwardHeaders: [header] } }] },
    })),
  { name: "a time without a unit", config: { targets: [{ name: "a", stdio }], sessionIdleTtl: 30 } },
];
for (const { name, config } of refused) {
  test(`refuses ${name}`, () => {
    assert.equal(mcpSchema.safeParse(config).success, false);
  });
}
